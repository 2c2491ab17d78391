// How many threads a run uses when nobody says: one for each physical core that the process may use.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/internal.h"

namespace tripod::rt {
namespace {

constexpr int32_t kMaxCpus = 4096;

struct CpuSet {
  uint64_t words[kMaxCpus / 64];
  bool has(int32_t cpu) const { return cpu < kMaxCpus && (words[cpu / 64] >> (cpu % 64) & 1); }
};

// The file as a string; false when it cannot be read.
bool read_text(const char* path, char* text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, size - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  return true;
}

// True when a hyper-thread of the same core with a lower number is in the set: that one counts.
bool counted_by_sibling(const CpuSet& set, int32_t cpu) {
  char path[96], text[256];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  if (!read_text(path, text, sizeof text)) return false;
  for (char* p = text; *p >= '0' && *p <= '9';) {  // "0,64" or "0-1"
    int32_t first = static_cast<int32_t>(strtol(p, &p, 10)), last = first;
    if (*p == '-') last = static_cast<int32_t>(strtol(p + 1, &p, 10));
    for (int32_t c = first; c <= last && c < cpu; ++c)
      if (set.has(c)) return true;
    if (*p == ',') ++p;
  }
  return false;
}

// A container's share of the machine, in whole CPUs; 0 when there is no limit.
int32_t quota() {
  char text[64];
  if (!read_text("/sys/fs/cgroup/cpu.max", text, sizeof text) || text[0] == 'm') return 0;
  char* p = text;
  long long used = strtoll(p, &p, 10), period = strtoll(p, &p, 10);
  return used > 0 && period > 0 ? static_cast<int32_t>((used + period - 1) / period) : 0;
}

}  // namespace

int32_t default_threads() {
  CpuSet set = {};
  if (syscall(SYS_sched_getaffinity, 0, sizeof set.words, set.words) <= 0) return 1;
  int32_t cores = 0;
  for (int32_t cpu = 0; cpu < kMaxCpus; ++cpu)
    if (set.has(cpu) && !counted_by_sibling(set, cpu)) ++cores;
  int32_t limit = quota();
  if (limit > 0 && limit < cores) cores = limit;
  return cores < 1 ? 1 : cores;
}

}  // namespace tripod::rt
