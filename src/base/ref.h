// Intrusively counted reference to an immutable node. A node type derives from RefCounted and is built as
// `auto n = std::make_shared`-like: Ref<const T>(new T(...)). Not thread-safe: IR is built on one thread.
#pragma once

#include <cstdint>
#include <utility>

namespace tripod {

struct RefCounted {
  mutable int32_t references = 0;
  RefCounted() = default;
  RefCounted(const RefCounted&) : references(0) {}
  RefCounted& operator=(const RefCounted&) { return *this; }
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}  // NOLINT: an absent node
  explicit Ref(T* p) : p_(p) { retain(); }
  Ref(const Ref& o) : p_(o.p_) { retain(); }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  ~Ref() { release(); }
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  void retain() {
    if (p_) ++p_->references;
  }
  void release() {
    if (p_ && --p_->references == 0) delete p_;
  }
  T* p_ = nullptr;
};

}  // namespace tripod
