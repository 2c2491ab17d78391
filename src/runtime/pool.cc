// The thread pool: one a model, started by the first launch that wants more than one thread.
//
// A launch owns the pool while it runs; a second host thread that finds it taken runs its launch by itself. The
// owner publishes the job, opens the gate with one seat for every helper wanted, and bumps `signal`, on which idle
// helpers spin for a while and then sleep. Helpers take seats; whoever comes after the work is done finds no seat and
// goes back to idle, so the owner waits only for helpers that did take one, never for a thread to wake up.
//
// Iterations are dealt out as one contiguous range a thread (the same thread then touches the same memory from launch
// to launch), in a few pieces each; a thread that is done takes pieces of the others' ranges.
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "runtime/internal.h"

namespace tripod::rt {
namespace {

constexpr int32_t kMaxThreads = 256;
constexpr int64_t kPieces = 4;              // of one thread's range
constexpr uint64_t kSpinCycles = 100'000;   // about 40 us, several launches of a busy model
constexpr uint64_t kOwnerSpinCycles = 60'000;

struct alignas(64) Range {
  std::atomic<int64_t> next;
  int64_t end;
};

struct Job {
  tp_kernel kernel;
  const uint64_t* args;
  int64_t piece;
  int32_t threads;
  char* scratch;
  int64_t scratch_stride;
};

// gate: seats left in the high half; in the low half the helpers inside, and kOwnerSleeps.
constexpr uint64_t kSeat = uint64_t{1} << 32;
constexpr uint64_t kInside = 0x7fff'ffff;
constexpr uint64_t kOwnerSleeps = 0x8000'0000;

struct Pool {
  std::atomic<int32_t> threads;  // wanted, 0: not decided yet
  std::atomic<int32_t> pid;      // the process that started the helpers: they do not survive a fork
  std::atomic<uint32_t> owned;
  int32_t helpers;               // started; changed by the owner only
  pthread_t handles[kMaxThreads];
  Job job;
  alignas(64) std::atomic<uint64_t> gate;
  alignas(64) std::atomic<uint32_t> signal;
  std::atomic<uint32_t> quit;
  alignas(64) std::atomic<int32_t> parked;
  Range ranges[kMaxThreads];
};
Pool pool;  // zero-initialised, no constructor runs

void work(int32_t slot) {
  const Job& job = pool.job;
  char* scratch = job.scratch + slot * job.scratch_stride;
  for (int32_t i = 0; i < job.threads; ++i) {
    int32_t r = slot + i < job.threads ? slot + i : slot + i - job.threads;
    Range& range = pool.ranges[r];
    while (range.next.load(std::memory_order_relaxed) < range.end) {
      int64_t begin = range.next.fetch_add(job.piece, std::memory_order_relaxed);
      if (begin >= range.end) break;
      int64_t end = begin + job.piece < range.end ? begin + job.piece : range.end;
      job.kernel(job.args, begin, end, scratch);
    }
  }
}

// Takes a seat of the open launch, if there is one, and works.
bool join_launch(int32_t helper) {
  uint64_t gate = pool.gate.load(std::memory_order_acquire);
  do {
    if (gate < kSeat) return false;
  } while (!pool.gate.compare_exchange_weak(gate, gate - kSeat + 1, std::memory_order_acq_rel));
  int32_t threads = pool.job.threads;
  // With everybody wanted, a helper always gets the same range; otherwise ranges go by order of arrival.
  int32_t slot = threads == pool.helpers + 1 ? helper : threads - static_cast<int32_t>(gate >> 32);
  work(slot);
  uint64_t before = pool.gate.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kInside) == 1 && (before & kOwnerSleeps)) futex_wake(&pool.gate, 1);
  return true;
}

void idle(uint32_t seen) {
  uint64_t start = __rdtsc();
  while (__rdtsc() - start < kSpinCycles) {
    if (pool.signal.load(std::memory_order_acquire) != seen) return;
    _mm_pause();
  }
  pool.parked.fetch_add(1);  // seq_cst, as is the owner's bump of `signal` before it reads `parked`
  while (pool.signal.load() == seen) futex_wait(&pool.signal, seen);
  pool.parked.fetch_sub(1);
}

void* helper_main(void* argument) {
  _mm_setcsr(0x1f80);  // the same arithmetic as on the calling thread: see run_model
  int32_t helper = static_cast<int32_t>(reinterpret_cast<intptr_t>(argument));
  for (;;) {
    uint32_t seen = pool.signal.load(std::memory_order_acquire);
    if (pool.quit.load(std::memory_order_acquire)) return nullptr;
    if (!join_launch(helper)) idle(seen);
  }
}

// Signals stay with the host's own threads.
void start_helpers(int32_t wanted) {
  sigset_t all, before;
  sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  while (pool.helpers < wanted) {
    void* id = reinterpret_cast<void*>(static_cast<intptr_t>(pool.helpers + 1));
    if (pthread_create(&pool.handles[pool.helpers], nullptr, helper_main, id) != 0) break;
    ++pool.helpers;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// True when the pool belongs to this process; forgets the helpers of the parent after a fork.
bool same_process() {
  int32_t now = getpid();
  int32_t known = pool.pid.load(std::memory_order_acquire);
  if (known == now) return true;
  if (known < 0 || !pool.pid.compare_exchange_strong(known, -1)) return false;  // another thread is at it
  pool.helpers = 0;
  pool.gate.store(0);
  pool.parked.store(0);
  pool.owned.store(0);
  pool.pid.store(now, std::memory_order_release);
  return true;
}

int32_t wanted_threads() {
  int32_t n = pool.threads.load(std::memory_order_relaxed);
  if (n == 0) {
    n = default_threads();
    n = n > kMaxThreads ? kMaxThreads : n;
    int32_t undecided = 0;
    if (!pool.threads.compare_exchange_strong(undecided, n)) n = undecided;
  }
  return n;
}

// Threads for a launch that could feed `shares`; more than 1 means that the pool is now owned.
int32_t acquire(tp_run& run, int64_t shares) {
  int32_t threads = wanted_threads();
  if (threads == 1) return 1;
  if (!run.pool_checked) {
    if (!same_process()) return 1;
    run.pool_checked = true;
  }
  if (pool.owned.load(std::memory_order_relaxed) || pool.owned.exchange(1, std::memory_order_acquire)) return 1;
  if (threads - 1 > pool.helpers) start_helpers(threads - 1);
  if (threads > pool.helpers + 1) threads = pool.helpers + 1;
  if (threads > shares) threads = static_cast<int32_t>(shares);
  if (threads <= 1) pool.owned.store(0, std::memory_order_release);
  return threads;
}

void open_gate(int32_t threads) {
  pool.gate.store(kSeat * static_cast<uint64_t>(threads - 1), std::memory_order_release);
  pool.signal.fetch_add(1);
  int32_t parked = pool.parked.load();
  if (parked == 0) return;
  int32_t awake = pool.helpers - parked;
  if (awake < threads - 1) futex_wake(&pool.signal, threads - 1 - awake);
}

// No more seats; waits for the helpers inside.
void close_gate() {
  pool.gate.fetch_and(kSeat - 1, std::memory_order_acq_rel);
  uint64_t start = __rdtsc();
  uint64_t gate;
  while ((gate = pool.gate.load(std::memory_order_acquire)) & kInside) {
    if (__rdtsc() - start < kOwnerSpinCycles) {
      _mm_pause();
      continue;
    }
    gate = pool.gate.fetch_or(kOwnerSleeps) | kOwnerSleeps;
    if (gate & kInside) futex_wait(&pool.gate, static_cast<uint32_t>(gate));
  }
}

void run_parallel(tp_kernel kernel, const uint64_t* args, int64_t extent, int64_t grain, int32_t threads,
                  char* scratch, int64_t scratch_stride) {
  int64_t quotient = extent / threads, remainder = extent % threads, begin = 0;
  for (int32_t t = 0; t < threads; ++t) {
    pool.ranges[t].next.store(begin, std::memory_order_relaxed);
    begin += quotient + (t < remainder ? 1 : 0);
    pool.ranges[t].end = begin;
  }
  int64_t pieces = quotient / grain;
  pieces = pieces < 1 ? 1 : pieces > kPieces ? kPieces : pieces;
  int64_t longest = quotient + (remainder > 0 ? 1 : 0);
  int64_t piece = (longest + pieces - 1) / pieces;
  pool.job = {kernel, args, piece, threads, scratch, scratch_stride};
  open_gate(threads);
  work(0);
  close_gate();
}

}  // namespace

tripod_status set_num_threads(int32_t n) {
  if (n < 0 || n > kMaxThreads)
    return set_last_error(TRIPOD_INVALID_ARGUMENT, "set_num_threads: got %d, wanted 0..%d", n, kMaxThreads);
  pool.threads.store(n, std::memory_order_relaxed);
  return TRIPOD_OK;
}

// Runs when model.so is unloaded or the process ends. The pool stays owned: later launches run inline.
void stop_pool() {
  if (pool.pid.load() != getpid()) return;
  while (pool.owned.exchange(1, std::memory_order_acquire)) sched_yield();
  pool.quit.store(1);
  pool.signal.fetch_add(1);
  futex_wake(&pool.signal, kMaxThreads);
  for (int32_t i = 0; i < pool.helpers; ++i) pthread_join(pool.handles[i], nullptr);
  pool.helpers = 0;
}

}  // namespace tripod::rt

using namespace tripod::rt;

int32_t tp_launch(tp_run* run, tp_kernel kernel, uint64_t* args, int64_t extent, int64_t grain,
                  int64_t scratch_bytes) {
  args[0] = reinterpret_cast<uint64_t>(run);
  if (extent <= 0) return TRIPOD_OK;
  if (grain < 1) grain = 1;
  int32_t threads = extent < 2 * grain ? 1 : acquire(*run, extent / grain);
  int64_t stride = (scratch_bytes + 63) & ~int64_t{63};
  bool memory = scratch_bytes == 0 || reserve(run->thread_scratch, stride * threads);
  char* scratch = run->thread_scratch.data;
  if (memory && threads == 1) kernel(args, 0, extent, scratch);
  if (memory && threads > 1) run_parallel(kernel, args, extent, grain, threads, scratch, stride);
  if (threads > 1) pool.owned.store(0, std::memory_order_release);
  if (memory) return TRIPOD_OK;
  return fail(*run, TRIPOD_OUT_OF_MEMORY, "out of memory: %lld bytes of scratch for each of %d threads",
              static_cast<long long>(scratch_bytes), threads);
}
