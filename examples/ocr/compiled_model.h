// One model.so with one f32 input and one f32 output, through tripod/model.h.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tripod/model.h"

namespace ocr {

// A view of floats: what the model wrote, valid until its next run.
struct Floats {
  const float* data;
  std::vector<int64_t> shape;
};

class CompiledModel {
 public:
  CompiledModel(const std::string& path, int threads) : path_(path) {
    const char* error = nullptr;
    api_ = tripod_open(path.c_str(), &error);
    if (!api_) throw std::runtime_error(path + ": " + (error ? error : "cannot be opened"));
    check(api_->set_num_threads(threads));
    tripod_context_options options = {TRIPOD_API_VERSION, TRIPOD_CPU, 0, nullptr, allocate, this, nullptr, nullptr, 0};
    check(api_->create_context(&options, &context_));
  }
  ~CompiledModel() { api_->destroy_context(context_); }
  CompiledModel(const CompiledModel&) = delete;
  CompiledModel& operator=(const CompiledModel&) = delete;

  // The output's size depends on the input's; the model asks for its memory, which is kept for the next run.
  Floats run(const std::vector<float>& input, const std::vector<int64_t>& shape) {
    tripod_value in = {}, out = {};
    in.tensor.data = const_cast<float*>(input.data());
    in.tensor.shape = shape.data();
    in.tensor.rank = int32_t(shape.size());
    in.tensor.dtype = TRIPOD_F32;
    check(api_->run(context_, &in, 1, &out, 1));
    const tripod_tensor& t = out.tensor;
    return {static_cast<const float*>(t.data), std::vector<int64_t>(t.shape, t.shape + t.rank)};
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  static void* allocate(void* user, int32_t, size_t bytes, tripod_dtype, int32_t, const int64_t*) {
    auto& model = *static_cast<CompiledModel*>(user);
    if (bytes > model.capacity_ || !model.memory_) {
      model.capacity_ = (bytes + 64) / 64 * 64;
      model.memory_.reset(std::aligned_alloc(64, model.capacity_));
    }
    return model.memory_.get();
  }

  void check(tripod_status status) const {
    if (status != TRIPOD_OK) throw std::runtime_error(path_ + ": " + api_->last_error());
  }

  std::string path_;
  const tripod_api* api_ = nullptr;
  tripod_context* context_ = nullptr;
  std::unique_ptr<void, Free> memory_;
  size_t capacity_ = 0;
};

}  // namespace ocr
