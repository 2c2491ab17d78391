// Weights beside model.so: a .safetensors file that is mapped once, when the first context is made. Offsets in the
// generated program count from the start of the file's data, after its header.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "runtime/internal.h"

namespace tripod::rt {
namespace {

Mutex mapping;
std::atomic<const char*> mapped_data;
char* mapped_file;
size_t mapped_size;

// The folder of model.so, then the name of the weights, unless that is a whole path; false when it does not fit.
bool weights_path(char* path, size_t size) {
  const char* name = tp_the_model.external_weights;
  const char* folder = "";
  int length = 0;
  Dl_info self;
  if (name[0] != '/') {
    if (dladdr(&tp_the_model, &self) == 0 || !self.dli_fname) return false;
    const char* slash = strrchr(self.dli_fname, '/');
    folder = self.dli_fname;
    length = slash ? static_cast<int>(slash + 1 - self.dli_fname) : 0;
  }
  int n = snprintf(path, size, "%.*s%s", length, folder, name);
  return n > 0 && static_cast<size_t>(n) < size;
}

// What is wrong with the file, whose header says what it holds; empty: nothing.
const char* problem_of(const char* file, uint64_t size, uint64_t header) {
  uint64_t length = 0;
  if (size < sizeof length + header) return "it is cut off";
  memcpy(&length, file, sizeof length);
  if (length != header || memcmp(file + sizeof length, tp_the_model.external_header, header) != 0)
    return "it belongs to another model, or to another compilation of this one";
  uint64_t wanted = sizeof length + header + static_cast<uint64_t>(tp_the_model.weights_size);
  return size < wanted ? "it is cut off" : size > wanted ? "it is longer than it should be" : nullptr;
}

// Maps the file and returns its data; an error otherwise.
tripod_status map_file(const char* path, const char** data) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for a writer
  if (fd < 0) return set_last_error(TRIPOD_RUNTIME_ERROR, "weights '%s': %s", path, strerror(errno));
  struct stat s = {};
  void* file = MAP_FAILED;
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
    close(fd);
    return set_last_error(TRIPOD_RUNTIME_ERROR, "weights '%s': not a regular file", path);
  }
  if (s.st_size > 0) file = mmap(nullptr, static_cast<size_t>(s.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (s.st_size == 0) return set_last_error(TRIPOD_RUNTIME_ERROR, "weights '%s': it is empty", path);
  if (file == MAP_FAILED) return set_last_error(TRIPOD_OUT_OF_MEMORY, "weights '%s': %s", path, strerror(errno));
  mapped_file = static_cast<char*>(file);
  mapped_size = static_cast<size_t>(s.st_size);
  uint64_t header = strlen(tp_the_model.external_header);
  if (const char* problem = problem_of(mapped_file, mapped_size, header)) {
    unmap_weights();
    return set_last_error(TRIPOD_RUNTIME_ERROR, "weights '%s': %s", path, problem);
  }
  *data = mapped_file + sizeof header + header;
  return TRIPOD_OK;
}

}  // namespace

const char* weights() {
  if (!tp_the_model.external_weights) return tp_the_model.weights ? tp_the_model.weights : empty_data();
  if (const char* known = mapped_data.load(std::memory_order_acquire)) return known;
  Lock lock(mapping);
  if (const char* known = mapped_data.load(std::memory_order_acquire)) return known;
  char path[4096];
  const char* data = nullptr;
  if (!weights_path(path, sizeof path))
    set_last_error(TRIPOD_RUNTIME_ERROR, "weights '%s': the path of the model is not known",
                   tp_the_model.external_weights);
  else if (map_file(path, &data) == TRIPOD_OK)
    mapped_data.store(data, std::memory_order_release);
  return data;
}

void unmap_weights() {
  if (mapped_file) munmap(mapped_file, mapped_size);
  mapped_file = nullptr;
}

}  // namespace tripod::rt
