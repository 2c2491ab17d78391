/* Measures one compiled model in a fresh process, and counts what a call allocates.
 *
 * usage: steady model.so INPUTS CALLS SECONDS
 *   INPUTS: a text file, one input a line: DTYPE RANK DIM... FILE (dtype as the number of tripod_dtype, raw bytes).
 * Prints one line of JSON: start_ms from dlopen to the first result, the median and 99th percentile of the calls after
 * it in us, what calls 2 to CALLS allocated (or as many as fit into SECONDS, at least 20), the bytes the model holds
 * (arena, scratch, staging) and the largest resident set.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tripod/model.h"

/* Every way to get memory, counted. Defined here, they take the place of libc's for model.so as well. */
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
static volatile long allocations, held;
void* malloc(size_t n) { ++allocations; return __libc_malloc(n); }
void* calloc(size_t n, size_t m) { ++allocations; return __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { ++allocations; return __libc_realloc(p, n); }
void* memalign(size_t a, size_t n) { ++allocations; return __libc_memalign(a, n); }
void* aligned_alloc(size_t a, size_t n) { ++allocations; return __libc_memalign(a, n); }
int posix_memalign(void** out, size_t a, size_t n) {
  ++allocations;
  held += (long)n;
  return (*out = __libc_memalign(a, n)) ? 0 : 12;
}
void* mmap(void* p, size_t n, int prot, int flags, int fd, off_t at) {
  ++allocations;
  return (void*)syscall(SYS_mmap, p, n, prot, flags, fd, at);
}
void* mmap64(void* p, size_t n, int prot, int flags, int fd, off_t at) { return mmap(p, n, prot, flags, fd, at); }
int brk(void* p) { ++allocations; return (void*)syscall(SYS_brk, p) < p ? -1 : 0; }

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
static void fail(const char* what) {
  fprintf(stderr, "steady: %s\n", what);
  exit(1);
}
static void* allocate(void* user, int32_t output, size_t bytes, tripod_dtype dtype, int32_t rank, const int64_t* shape) {
  (void)user, (void)output, (void)dtype, (void)rank, (void)shape;
  return aligned_alloc(64, (bytes + 64) / 64 * 64);
}
static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static int32_t read_inputs(const char* path, tripod_value* values, int32_t most) {
  static int64_t shapes[512][TRIPOD_MAX_RANK];
  FILE* list = fopen(path, "r");
  int32_t n = 0;
  int dtype, rank;
  if (!list) fail("cannot read the list of inputs");
  while (n < most && fscanf(list, "%d %d", &dtype, &rank) == 2) {
    char file[4096];
    memset(&values[n], 0, sizeof values[n]);
    for (int d = 0; d < rank; ++d)
      if (fscanf(list, "%ld", &shapes[n][d]) != 1) fail("bad list of inputs");
    if (fscanf(list, "%4095s", file) != 1) fail("bad list of inputs");
    FILE* f = fopen(file, "rb");
    if (!f) fail(file);
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    void* data = aligned_alloc(64, (size + 64) / 64 * 64);
    if (fread(data, 1, size, f) != size) fail(file);
    fclose(f);
    values[n].tensor = (tripod_tensor){data, shapes[n], NULL, rank, (tripod_dtype)dtype, TRIPOD_CPU, 0};
    ++n;
  }
  fclose(list);
  return n;
}

static long status_kb(const char* key) {
  char line[256];
  long kb = 0;
  FILE* f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, key, strlen(key)) == 0) kb = atol(line + strlen(key) + 1);
  if (f) fclose(f);
  return kb;
}

int main(int argc, char** argv) {
  if (argc != 5) fail("usage: steady model.so INPUTS CALLS SECONDS");
  static tripod_value in[512], out[512];
  static double times[1000000];
  const int32_t inputs = read_inputs(argv[2], in, 512);
  const long calls = atol(argv[3]) < 1000000 ? atol(argv[3]) : 1000000;
  const double most_us = atof(argv[4]) * 1e6;
  const long before_kb = status_kb("VmRSS:");

  double start = now_us();
  const char* error = NULL;
  const tripod_api* model = tripod_open(argv[1], &error);
  if (!model) fail(error);
  tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CPU, 0, NULL, allocate, NULL, NULL, NULL, 0};
  tripod_context* context = NULL;
  const char* threads = getenv("STEADY_THREADS");
  if (threads && model->set_num_threads(atoi(threads))) fail(model->last_error());
  held = 0;
  if (model->create_context(&options, &context)) fail(model->last_error());
  const int32_t outputs = model->num_outputs();
  if (model->run(context, in, inputs, out, outputs)) fail(model->last_error());
  const double first_us = now_us() - start;

  /* The outputs are now described and stay: from here on they are the caller's. */
  static int64_t shapes[512][TRIPOD_MAX_RANK];
  for (int32_t i = 0; i < outputs; ++i) {
    for (int32_t d = 0; d < out[i].tensor.rank; ++d) shapes[i][d] = out[i].tensor.shape[d];
    out[i].tensor.shape = shapes[i];
  }
  long done = 0, from = 0;
  for (start = now_us(); done < calls && (done < 20 || now_us() - start < most_us); ++done) {
    if (done == 1) from = allocations;
    double t = now_us();
    if (model->run(context, in, inputs, out, outputs)) fail(model->last_error());
    times[done] = now_us() - t;
  }
  const long allocated = allocations - from;
  qsort(times, (size_t)done, sizeof *times, by_value);
  printf("{\"start_ms\": %.3f, \"median_us\": %.3f, \"p99_us\": %.3f, \"calls\": %ld, \"allocations\": %ld, "
         "\"held_mb\": %.3f, \"rss_mb\": %.1f, \"before_mb\": %.1f}\n",
         first_us / 1e3, times[done / 2], times[done * 99 / 100], done, allocated, (double)held / 1e6,
         (double)status_kb("VmHWM:") / 1024, (double)before_kb / 1024);
  model->destroy_context(context);
  return 0;
}
