// The thread pool: every iteration once, concurrent callers, fork, steady calls without allocation.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/internal.h"

extern "C" const tripod_api* tripod_get_api(uint32_t version);

// Sanitizers have a malloc of their own. g++ says so by a macro, clang by a feature.
#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#if !SANITIZED
#define COUNT_ALLOCATIONS 1
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
std::atomic<int64_t> allocations;
void* malloc(size_t n) { return ++allocations, __libc_malloc(n); }
void* calloc(size_t n, size_t m) { return ++allocations, __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { return ++allocations, __libc_realloc(p, n); }
int posix_memalign(void** p, size_t a, size_t n) {
  ++allocations;
  *p = __libc_memalign(a, n);
  return *p ? 0 : 12;
}
}
#endif

namespace {

using namespace tripod::rt;

struct Fixture {
  tripod_context* context = new_context();
  tp_run& run = context->run;
  ~Fixture() { delete_context(context); }
};

void count_kernel(const uint64_t* args, int64_t begin, int64_t end, void* scratch) {
  auto* counts = reinterpret_cast<std::atomic<int>*>(args[1]);
  auto* mine = static_cast<int64_t*>(scratch);
  for (int64_t i = begin; i < end; ++i) {
    *mine = i;  // scratch is this thread's alone
    counts[i].fetch_add(1, std::memory_order_relaxed);
    if (*mine != i) counts[i].fetch_add(1000);
  }
}

void check_launch(tp_run& run, int64_t extent, int64_t grain) {
  std::vector<std::atomic<int>> counts(static_cast<size_t>(extent));
  uint64_t args[] = {0, reinterpret_cast<uint64_t>(counts.data())};
  ASSERT_EQ(tp_launch(&run, count_kernel, args, extent, grain, 8), 0);
  ASSERT_EQ(args[0], reinterpret_cast<uint64_t>(&run));
  for (auto& c : counts) ASSERT_EQ(c.load(), 1);
}

TEST(Pool, EveryIterationOnce) {
  Fixture f;
  for (int32_t threads : {1, 2, 3, 4, 8, 64}) {
    ASSERT_EQ(set_num_threads(threads), TRIPOD_OK);
    for (int64_t extent : {0, 1, 2, 3, 7, 63, 64, 65, 1000, 4097})
      for (int64_t grain : {1, 2, 5, 64, 5000}) check_launch(f.run, extent, grain);
  }
  set_num_threads(0);
}

TEST(Pool, ManySmallLaunches) {
  Fixture f;
  set_num_threads(4);
  for (int i = 0; i < 3000; ++i) check_launch(f.run, 1 + i % 40, 1);
  for (int i = 0; i < 30; ++i) {  // with pauses long enough for helpers to park
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    check_launch(f.run, 100, 1);
  }
  set_num_threads(0);
}

TEST(Pool, SeveralCallers) {
  set_num_threads(3);
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([] {
      Fixture f;
      for (int i = 0; i < 1000; ++i) check_launch(f.run, 1 + i % 200, 1 + i % 3);
    });
  for (auto& c : callers) c.join();
  set_num_threads(0);
}

TEST(Pool, WorksInAForkedChild) {
  Fixture f;
  set_num_threads(2);
  check_launch(f.run, 1000, 1);
  pid_t child = fork();
  if (child == 0) {
    Fixture g;
    check_launch(g.run, 1000, 1);
    _exit(testing::Test::HasFailure() ? 1 : 42);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  set_num_threads(0);
}

TEST(Pool, DefaultThreads) {
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), static_cast<int32_t>(std::thread::hardware_concurrency()));
}

// Times as a plain statement of the cost of a call; also that a steady call allocates nothing.
TEST(Pool, SteadyCallAllocatesNothing) {
  const tripod_api& api = *tripod_get_api(TRIPOD_API_VERSION);
  tripod_context* context = nullptr;
  ASSERT_EQ(api.create_context(nullptr, &context), TRIPOD_OK);
  for (int64_t mode : {0, 1}) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[4] = {}, sum[8], cols[4];
    int64_t where[2], xs[] = {2, 4}, ys[] = {2, 2}, ws[] = {2};
    auto tensor = [](void* p, const int64_t* shape, int32_t rank, tripod_dtype dtype) {
      return tripod_value{TRIPOD_TENSOR, {p, shape, nullptr, rank, dtype, TRIPOD_CPU, 0}, nullptr, 0};
    };
    tripod_value in[] = {tensor(x, xs, 2, TRIPOD_F32), tensor(y, ys, 2, TRIPOD_F32), tensor(&mode, nullptr, 0, TRIPOD_I64)};
    tripod_value out[] = {tensor(sum, xs, 2, TRIPOD_F32), tensor(cols, ys, 2, TRIPOD_F32), tensor(where, ws, 1, TRIPOD_I64)};
    for (int i = 0; i < 3; ++i) ASSERT_EQ(api.run(context, in, 3, out, 3), TRIPOD_OK) << api.last_error();
#ifdef COUNT_ALLOCATIONS
    int64_t before = allocations;
#endif
    constexpr int kCalls = 20000;
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) api.run(context, in, 3, out, 3);
    auto time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / kCalls;
#ifdef COUNT_ALLOCATIONS
    EXPECT_EQ(allocations, before);
#endif
    RecordProperty(mode ? "serial_us" : "parallel_us", std::to_string(time));
    printf("%s: %.2f us a call (5 launches, 3 inputs, 3 outputs)\n", mode ? "serial" : "parallel", time);
  }
  api.destroy_context(context);
}

}  // namespace
