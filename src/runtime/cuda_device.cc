// GPUs as this model uses them: which image runs there, its kernels, the weights.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cuda.h"

namespace tripod::rt::cuda {
namespace {

constexpr int32_t kMaxDevices = 64;
std::atomic<Device*> devices[kMaxDevices];
Mutex making;

// A cubin also runs on later devices of its generation (sm_80's on sm_86 and sm_89); sm_90a's on its own only.
bool runs_on(const tp_image& image, int32_t arch) {
  return image.arch == arch || (arch < 90 && image.arch / 10 == arch / 10 && image.arch < arch);
}

// The cubin made for the nearest architecture, else the newest PTX that it can run.
const tp_image* choose_image(const tp_device_part& part, int32_t arch) {
  const tp_image *cubin = nullptr, *ptx = nullptr;
  for (int32_t i = 0; i < part.num_images; ++i) {
    const tp_image& image = part.images[i];
    const tp_image*& best = image.ptx ? ptx : cubin;
    if ((image.ptx ? image.arch <= arch : runs_on(image, arch)) && (!best || image.arch > best->arch)) best = &image;
  }
  return cubin ? cubin : ptx;
}

tripod_status no_image(const tp_device_part& part, const Device& device) {
  char name[64] = "?", has[256] = "no code at all";
  device.driver->device_name(name, sizeof name, device.handle);
  size_t n = 0;
  for (int32_t i = 0; i < part.num_images && n < sizeof has; ++i)
    n += static_cast<size_t>(snprintf(has + n, sizeof has - n, "%s%s%d", i ? ", " : "",
                                      part.images[i].ptx ? "PTX for compute_" : "sm_", part.images[i].arch));
  return set_last_error(TRIPOD_UNSUPPORTED,
                        "architecture not in the file: the device is sm_%d (cuda:%d, %s), the file has %s; compile the "
                        "model with --arch=sm_%d%s, or with --arch=compute_80 as well",
                        device.arch, device.id, name, has, device.arch, device.arch >= 90 ? "a" : "");
}

tripod_status failed(const Device& device, Result r, const char* what) {
  char text[256];
  return set_last_error(r == kOutOfMemory ? TRIPOD_OUT_OF_MEMORY : TRIPOD_RUNTIME_ERROR, "cuda:%d: %s: %s", device.id,
                        what, describe(*device.driver, r, text, sizeof text));
}

tripod_status load_module(Device& device, const tp_image& image) {
  char log[1024] = "";
  int32_t options[] = {kJitErrorLog, kJitErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  if (device.num_modules == kMaxModules) return set_last_error(TRIPOD_UNSUPPORTED, "more than %d images of one architecture", kMaxModules);
  Module* module = nullptr;
  Result r = device.driver->module_load(&module, image.data, 2, options, values);
  if (r == 0) {
    device.modules[device.num_modules++] = module;
    return TRIPOD_OK;
  }
  char text[256];
  describe(*device.driver, r, text, sizeof text);
  const char* kind = image.ptx ? "PTX for compute_" : "code for sm_";
  if (r == kUnsupportedPtx || r == kNoBinaryForGpu || r == kInvalidImage) {
    int32_t version = 0;
    device.driver->driver_version(&version);
    return set_last_error(TRIPOD_UNSUPPORTED,
                          "driver too old: the one on this machine (for CUDA %d.%d) does not load the file's %s%d: %s %s",
                          version / 1000, version % 1000 / 10, kind, image.arch, text, log);
  }
  return set_last_error(r == kOutOfMemory ? TRIPOD_OUT_OF_MEMORY : TRIPOD_RUNTIME_ERROR,
                        "cuda:%d: the file's %s%d does not load: %s %s", device.id, kind, image.arch, text, log);
}

// The kernels are spread over the images of the architecture.
Result find_kernel(Device& device, int32_t k, const char* name) {
  Result r = kNotFound;
  for (int32_t m = 0; r != 0 && m < device.num_modules; ++m)
    r = device.driver->module_function(&device.functions[k], device.modules[m], name);
  return r;
}

tripod_status find_kernels(Device& device, const tp_device_part& part) {
  auto n = static_cast<size_t>(part.num_kernels > 0 ? part.num_kernels : 1);
  device.functions = static_cast<Function**>(calloc(n, sizeof(Function*)));
  device.shared_allowed = static_cast<std::atomic<int32_t>*>(calloc(n, sizeof(std::atomic<int32_t>)));
  if (!device.functions || !device.shared_allowed) return set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory");
  for (int32_t k = 0; k < part.num_kernels; ++k)
    if (Result r = find_kernel(device, k, part.kernels[k])) {
      char what[192];
      snprintf(what, sizeof what, "kernel '%s' (%s) is not in the file's code", part.kernels[k], part.origins[k]);
      return failed(device, r, what);
    }
  return TRIPOD_OK;
}

// The mapping of the file is the source; the copy has ended when this returns.
tripod_status upload_weights(Device& device) {
  const char* source = weights();
  if (!source) return TRIPOD_RUNTIME_ERROR;  // and its message
  auto size = static_cast<size_t>(tp_the_model.weights_size);
  if (size == 0) return TRIPOD_OK;
  if (Result r = device.driver->alloc(&device.weights, size)) {
    size_t free = 0, total = 0;
    if (r != kOutOfMemory || device.driver->memory_info(&free, &total) != 0)
      return failed(device, r, "allocating the weights");
    return set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory on cuda:%d: %zu bytes wanted for the weights, %zu free of %zu",
                          device.id, size, free, total);
  }
  if (Result r = device.driver->copy_to_device(device.weights, source, size))
    return failed(device, r, "copying the weights");
  return TRIPOD_OK;
}

tripod_status fill_device(Device& device) {
  const tp_device_part& part = *tp_the_model.device;
  const Driver& driver = *device.driver;
  int32_t major = 0, minor = 0;
  Result r = driver.device_get(&device.handle, device.id);
  if (r == 0) r = driver.device_attribute(&major, kComputeMajor, device.handle);
  if (r == 0) r = driver.device_attribute(&minor, kComputeMinor, device.handle);
  if (r == 0) r = driver.device_attribute(&device.shared_limit, kSharedOptIn, device.handle);
  if (r != 0) return failed(device, r, "asking for its properties");
  device.arch = major * 10 + minor;
  const bool empty = part.num_kernels == 0;  // only copies and host steps: nothing was compiled
  const tp_image* image = empty ? nullptr : choose_image(part, device.arch);
  if (!image && !empty) return no_image(part, device);
  r = driver.primary_retain(&device.primary, device.handle);
  if (r != 0) return failed(device, r, "making its context");
  Current current(device);
  if (current.status() != 0) return failed(device, current.status(), "making its context current");
  for (int32_t i = 0; image && i < part.num_images; ++i)
    if (part.images[i].arch == image->arch && part.images[i].ptx == image->ptx)
      if (tripod_status bad = load_module(device, part.images[i])) return bad;
  if (tripod_status bad = find_kernels(device, part)) return bad;
  return upload_weights(device);
}

// Also of a device that was filled in part.
void delete_device(Device* device) {
  if (device->primary) {
    {
      Current current(*device);
      if (device->weights) device->driver->free(device->weights);
      for (int32_t m = 0; m < device->num_modules; ++m) device->driver->module_unload(device->modules[m]);
    }
    device->driver->primary_release(device->handle);
  }
  free(device->functions);
  free(device->shared_allowed);
  free(device);
}

tripod_status make_device(int32_t id, Device** out) {
  char problem[384];
  const Driver* driver = open_driver(kDriverLibrary, problem, sizeof problem);
  if (!driver) return set_last_error(TRIPOD_UNSUPPORTED, "%s", problem);
  int32_t count = 0;
  driver->device_count(&count);
  if (id < 0 || id >= count || id >= kMaxDevices)
    return set_last_error(TRIPOD_UNSUPPORTED, "no GPU: cuda:%d was asked for, the driver sees %d", id, count);
  Uncaptured uncaptured(*driver);
  auto* device = static_cast<Device*>(calloc(1, sizeof(Device)));
  if (!device) return set_last_error(TRIPOD_OUT_OF_MEMORY, "out of memory");
  device->driver = driver;
  device->id = id;
  tripod_status bad = fill_device(*device);
  if (bad)
    delete_device(device);
  else
    *out = device;
  return bad;
}

}  // namespace

tripod_status open_device(int32_t id, Device** out) {
  bool possible = id >= 0 && id < kMaxDevices;
  if (possible && (*out = devices[id].load(std::memory_order_acquire))) return TRIPOD_OK;
  Lock lock(making);
  if (possible && (*out = devices[id].load(std::memory_order_acquire))) return TRIPOD_OK;
  if (tripod_status bad = make_device(id, out)) return bad;
  devices[id].store(*out, std::memory_order_release);
  return TRIPOD_OK;
}

// When model.so goes. At the end of a process the driver may be gone already, and in a forked child it never was.
void close_devices() {
  const Driver* driver = opened_driver();
  Context* current;
  bool usable = driver && driver->current(&current) == 0;
  for (auto& slot : devices)
    if (Device* device = slot.exchange(nullptr))
      if (usable) delete_device(device);
}

}  // namespace tripod::rt::cuda
