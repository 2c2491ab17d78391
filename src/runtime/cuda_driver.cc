// Loads libcuda. See cuda_driver.h.
#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>

#include "runtime/internal.h"

namespace tripod::rt::cuda {
namespace {

constexpr const char* kNames[] = {
#define X(member, name, parameters) #name,
    TP_CUDA_FUNCTIONS(X)
#undef X
};
constexpr size_t kCount = sizeof(kNames) / sizeof(kNames[0]);
static_assert(kCount * sizeof(void*) == sizeof(Driver));  // in the order of Driver's members

// The interface whose versions of the functions are asked for: cuMemAlloc is then cuMemAlloc_v2, and so on.
constexpr int32_t kInterface = 12000, kOldest = 11030;

using GetAddress = Result (*)(const char* name, void** address, int32_t version, uint64_t flags, void* found);
using OldGetAddress = Result (*)(const char* name, void** address, int32_t version, uint64_t flags);

Mutex opening;
std::atomic<uint32_t> opened;
Driver functions;

// One way to look up a function in drivers from 12.0 on, another in those from 11.3 on.
struct Lookup {
  GetAddress current;
  OldGetAddress old;

  void* operator()(const char* name) const {
    void* address = nullptr;
    Result r = current ? current(name, &address, kInterface, 0, nullptr) : old(name, &address, kOldest, 0);
    return r == 0 ? address : nullptr;
  }
};

}  // namespace

bool load_driver(const char* path, Driver* out, char* problem, size_t size) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    snprintf(problem, size, "no GPU: the driver's library does not load: %s", why ? why : path);
    return false;
  }
  Lookup find = {reinterpret_cast<GetAddress>(dlsym(library, "cuGetProcAddress_v2")),
                 reinterpret_cast<OldGetAddress>(dlsym(library, "cuGetProcAddress"))};
  if (!find.current && !find.old) {
    snprintf(problem, size, "driver too old: %s has no cuGetProcAddress; one for CUDA 11.3 or later is needed", path);
    return false;
  }
  void* addresses[kCount];
  for (size_t i = 0; i < kCount; ++i)
    if (!(addresses[i] = find(kNames[i]))) {
      snprintf(problem, size, "driver too old: %s has no %s", path, kNames[i]);
      return false;
    }
  Driver driver;
  __builtin_memcpy(&driver, addresses, sizeof driver);
  int32_t devices = 0;
  Result r = driver.init(0);
  if (r == 0) r = driver.device_count(&devices);
  if (r != 0 || devices == 0) {
    char text[256];
    snprintf(problem, size, "no GPU: %s", r ? describe(driver, r, text, sizeof text) : "the driver sees none");
    return false;
  }
  *out = driver;
  return true;
}

const Driver* open_driver(const char* path, char* problem, size_t size) {
  if (opened.load(std::memory_order_acquire)) return &functions;
  Lock lock(opening);
  if (!opened.load(std::memory_order_acquire)) {
    if (!load_driver(path, &functions, problem, size)) return nullptr;
    opened.store(1, std::memory_order_release);
  }
  return &functions;
}

const Driver* opened_driver() { return opened.load(std::memory_order_acquire) ? &functions : nullptr; }

const char* describe(const Driver& driver, Result error, char* text, size_t size) {
  const char *name = nullptr, *meaning = nullptr;
  if (driver.error_name(error, &name) != 0 || !name) name = "an unknown error";
  if (driver.error_text(error, &meaning) != 0 || !meaning) meaning = "the driver gives no text";
  snprintf(text, size, "%s (%s, %d)", meaning, name, error);
  return text;
}

}  // namespace tripod::rt::cuda
