// Waiting and waking, on futexes: a mutex, and the few words the thread pool needs. Own code instead of pthread's,
// because condition variables have two incompatible versions in libc and a model.so asks for no version.
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace tripod::rt {

inline void futex_wait(const void* word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
inline void futex_wake(const void* word, int32_t count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// 0 free, 1 held, 2 held and somebody waits. Zero-initialised memory is a free mutex.
class Mutex {
 public:
  void lock() {
    uint32_t free = 0;
    if (state_.compare_exchange_strong(free, 1, std::memory_order_acquire)) return;
    while (state_.exchange(2, std::memory_order_acquire) != 0) futex_wait(&state_, 2);
  }
  void unlock() {
    if (state_.exchange(0, std::memory_order_release) == 2) futex_wake(&state_, 1);
  }

 private:
  std::atomic<uint32_t> state_;
};

class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace tripod::rt
