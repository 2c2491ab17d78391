// A model.so opened by the tools: its manifest, and calls with tensors that own their memory.
#pragma once

#include <tripod/model.h>

#include <nlohmann/json.hpp>

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tripod {

struct Tensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;   // row-major
  int64_t count() const;
};
// The same numbers in another type (rounded to it); itself where it has that type.
Tensor converted(const Tensor& t, DType to);

// numpy's .npy (version 1, little-endian, C order) and ONNX's TensorProto (.pb). Throw CompileError.
Tensor read_npy(const std::string& path);
Tensor read_tensor(const std::string& path);
void write_npy(const std::string& path, const Tensor& t);
void write_tensor(const std::string& path, const Tensor& t);
// input_0.pb or input_0.npy, and so on for every input of a model; *npy (may be null): the last one was a .npy.
std::vector<Tensor> read_inputs(const std::string& folder, size_t count, bool* npy = nullptr);

// A call that the model itself refused or that failed, in its words: no fault of the tools.
struct RunError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class LoadedModel {
 public:
  // Called after every step of a run; see tripod_step.
  using StepHook = std::function<void(const tripod_step&)>;
  // device: "cpu", "cuda" or "cuda:N"; empty: what the model was compiled for, the first GPU. Tensors are host memory
  // all the same: a model on a GPU copies them. Throws CompileError when it cannot be loaded.
  explicit LoadedModel(const std::string& path, const std::string& device = "", StepHook on_step = nullptr);
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;

  const nlohmann::json& manifest() const { return manifest_; }
  void set_threads(int n);
  void set_cuda_graphs(bool on) { cuda_graphs_ = on; }  // before the first run
  // Inputs of the manifest's shapes filled with normal random numbers (integers: 0 or 1); symbolic dims from `dims`,
  // 1 where it does not name one (or the least the dim allows).
  std::vector<Tensor> random_inputs(const std::map<std::string, int64_t>& dims, uint64_t seed) const;
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);
  // The same into outputs of an earlier run: what a steady call costs.
  void run_into(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);

 private:
  void make_context();  // on the first run: looking at a GPU model needs no GPU
  void call(const std::vector<Tensor>& inputs, std::vector<tripod_value>& outputs);
  const tripod_api* api_ = nullptr;
  tripod_context* context_ = nullptr;
  nlohmann::json manifest_;
  std::string device_;
  bool cuda_graphs_ = false;
  StepHook on_step_;
  std::exception_ptr hook_error_;   // of on_step_: an exception must not pass through the run time
  std::map<int32_t, std::vector<std::byte>> memory_;   // the allocator's, by output
};

// NAME=VALUE, as `run` and `bench` take dims. Throws CompileError.
std::map<std::string, int64_t> parse_dims(const std::vector<std::string>& texts);

// Sizes in a manifest, for the dims of one moment: numbers, or expressions over names as text.
class SizeReader {
 public:
  // `values` belong to the manifest's "dims", in order.
  SizeReader(const nlohmann::json& manifest, const int64_t* values);
  std::optional<int64_t> read(const nlohmann::json& size) const;   // nothing: unknown, or it overflows
  std::optional<std::vector<int64_t>> read_shape(const nlohmann::json& shape) const;

 private:
  std::map<std::string, int64_t> values_;
};

// What the arenas of a model take for these dims (of the manifest's "dims", in order), and the least that any plan would
// take: the most bytes that are alive at one step. Nothing: a size is not known or overflows.
struct ArenaSize {
  int64_t bytes = 0, lower_bound = 0;
};
std::optional<ArenaSize> arena_size(const nlohmann::json& manifest, const std::vector<int64_t>& dims);

}  // namespace tripod
