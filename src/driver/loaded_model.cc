#include "driver/loaded_model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "base/diagnostic.h"
#include "base/float_bits.h"
#include "onnx/tensor_file.h"
#include "sym/expr.h"

namespace tripod {

Tensor converted(const Tensor& t, DType to) {
  if (t.dtype == to) return t;
  Tensor r{to, t.shape, {}};
  r.bytes.resize(static_cast<size_t>(byte_size(to, t.count())));
  for (int64_t i = 0; i < t.count(); ++i) store_double(to, r.bytes.data(), i, load_double(t.dtype, t.bytes.data(), i));
  return r;
}

int64_t Tensor::count() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

static std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw CompileError({}, "cannot read " + path);
  std::vector<char> chars((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(chars.size());
  if (!chars.empty()) std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

static void write_bytes(const std::string& path, const std::string& head, const std::vector<std::byte>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(head.data(), static_cast<std::streamsize>(head.size()));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out) throw CompileError({}, "cannot write " + path);
}

namespace {
struct NpyType {
  const char* text;
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {{"<f4", DType::f32}, {"<f8", DType::f64}, {"<f2", DType::f16}, {"|i1", DType::i8}, {"<i2", DType::i16},
                                 {"<i4", DType::i32}, {"<i8", DType::i64}, {"|u1", DType::u8}, {"<u2", DType::u16}, {"<u4", DType::u32},
                                 {"<u8", DType::u64}, {"|b1", DType::b1}};
}  // namespace

Tensor read_npy(const std::string& path) {
  const std::vector<std::byte> all = read_bytes(path);
  const auto bad = [&](const char* why) { return CompileError({}, path + ": " + why); };
  if (all.size() < 10 || std::memcmp(all.data(), "\x93NUMPY", 6) != 0) throw bad("not a .npy file");
  const size_t length = static_cast<size_t>(all[8]) | static_cast<size_t>(all[9]) << 8;
  if (all.size() < 10 + length) throw bad("the header is cut short");
  const std::string header(reinterpret_cast<const char*>(all.data()) + 10, length);
  if (header.find("'fortran_order': False") == std::string::npos) throw bad("wanted C order");
  Tensor t;
  const auto type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes), [&](const NpyType& k) { return header.find(std::string("'") + k.text + "'") != std::string::npos; });
  if (type == std::end(kNpyTypes)) throw bad("unsupported element type");
  t.dtype = type->dtype;
  const size_t open = header.find('(', header.find("'shape'"));
  if (open == std::string::npos) throw bad("no shape");
  for (size_t i = open + 1; i < header.size() && header[i] != ')';) {
    if (!std::isdigit(static_cast<unsigned char>(header[i]))) {
      ++i;
      continue;
    }
    size_t used = 0;
    t.shape.push_back(std::stoll(header.substr(i), &used));
    i += used;
  }
  t.bytes.assign(all.begin() + static_cast<long>(10 + length), all.end());
  if (static_cast<int64_t>(t.bytes.size()) != byte_size(t.dtype, t.count())) throw bad("its size does not fit its shape");
  return t;
}

void write_npy(const std::string& path, const Tensor& t) {
  const auto type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes), [&](const NpyType& k) { return k.dtype == t.dtype; });
  if (type == std::end(kNpyTypes)) throw CompileError({}, path + ": numpy has no type for " + std::string(name(t.dtype)));
  std::string dims;
  for (int64_t d : t.shape) dims += std::to_string(d) + ",";
  std::string header = std::string("{'descr': '") + type->text + "', 'fortran_order': False, 'shape': (" + dims + "), }";
  while ((10 + header.size() + 1) % 64) header += ' ';
  header += '\n';
  const std::string size = {static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  write_bytes(path, std::string("\x93NUMPY\x01\x00", 8) + size + header, t.bytes);
}

Tensor read_tensor(const std::string& path) {
  importer::TensorFile f = importer::read_tensor_file(path);
  return {f.dtype, std::move(f.shape), std::move(f.bytes)};
}

void write_tensor(const std::string& path, const Tensor& t) { importer::write_tensor_file(path, {t.dtype, t.shape, t.bytes}); }

static void set_device(tripod_context_options& options, const std::string& device) {
  const std::string number = device.size() > 5 && device.compare(0, 5, "cuda:") == 0 ? device.substr(5) : device == "cuda" ? "0" : "";
  const bool gpu = !number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos;
  if (!gpu && device != "cpu") throw CompileError({}, "--device wants cpu, cuda or cuda:N, got \"" + device + "\"");
  options.device = gpu ? TRIPOD_CUDA : TRIPOD_CPU;
  options.device_id = gpu ? std::stoi(number) : 0;
}

LoadedModel::LoadedModel(const std::string& path, const std::string& device, StepHook on_step)
    : device_(device), on_step_(std::move(on_step)) {
  const char* error = nullptr;
  api_ = tripod_open(std::filesystem::absolute(path).c_str(), &error);
  if (!api_) throw CompileError({}, std::string("cannot load: ") + (error ? error : "it has no tripod_get_api"));
  manifest_ = nlohmann::json::parse(api_->describe());
}

void LoadedModel::make_context() {
  tripod_context_options options{};
  options.version = TRIPOD_API_VERSION;
  set_device(options, !device_.empty() ? device_ : manifest_.value("target", "") == "cuda" ? "cuda" : "cpu");
  options.allocator = [](void* user, int32_t output, size_t bytes, tripod_dtype, int32_t, const int64_t*) -> void* {
    try {
      auto& memory = (*static_cast<std::map<int32_t, std::vector<std::byte>>*>(user))[output];
      memory.resize(bytes + 64);
      return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    } catch (const std::exception&) {
      return nullptr;  // the run time says how much was wanted
    }
  };
  options.allocator_user = &memory_;
  options.cuda_graphs = cuda_graphs_;
  if (on_step_) {
    options.step_hook = [](void* user, const tripod_step* step) {
      auto* self = static_cast<LoadedModel*>(user);
      try {
        if (!self->hook_error_) self->on_step_(*step);
      } catch (...) {
        self->hook_error_ = std::current_exception();
      }
    };
    options.step_user = this;
  }
  if (api_->create_context(&options, &context_) != TRIPOD_OK) throw CompileError({}, api_->last_error());
}

LoadedModel::~LoadedModel() {
  if (context_) api_->destroy_context(context_);
}

void LoadedModel::set_threads(int n) {
  if (api_->set_num_threads(n) != TRIPOD_OK) throw CompileError({}, api_->last_error());
}

std::vector<Tensor> LoadedModel::random_inputs(const std::map<std::string, int64_t>& dims, uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::map<std::string, int64_t> least;
  if (manifest_.contains("dims"))
    for (const auto& d : manifest_["dims"]) least[d["name"]] = std::max<int64_t>(1, d["min"].get<int64_t>());
  for (const auto& [name, value] : dims)
    if (!least.count(name)) throw CompileError({}, "the model has no dim \"" + name + "\"", "tripod inspect shows its dims");
  std::vector<Tensor> all;
  for (const auto& in : manifest_["inputs"]) {
    Tensor t;
    t.dtype = *parse_dtype(in["dtype"].get<std::string>());
    for (const auto& d : in["shape"]) {
      if (d.is_number()) {
        t.shape.push_back(d.get<int64_t>());
        continue;
      }
      const std::string symbol = d.get<std::string>();
      const auto given = dims.find(symbol);
      const auto bound = least.find(symbol);
      t.shape.push_back(given != dims.end() ? given->second : bound != least.end() ? bound->second : 1);
    }
    t.bytes.resize(static_cast<size_t>(byte_size(t.dtype, t.count())));
    for (int64_t i = 0; i < t.count(); ++i)
      store_double(t.dtype, t.bytes.data(), i, is_float(t.dtype) ? normal(random) : static_cast<double>(random() & 1));
    all.push_back(std::move(t));
  }
  return all;
}

static tripod_value as_value(const Tensor& t) {
  tripod_value v{};
  v.kind = TRIPOD_TENSOR;
  v.tensor.data = const_cast<std::byte*>(t.bytes.data());
  v.tensor.shape = t.shape.data();
  v.tensor.rank = static_cast<int32_t>(t.shape.size());
  v.tensor.dtype = static_cast<tripod_dtype>(t.dtype);
  return v;
}

void LoadedModel::call(const std::vector<Tensor>& inputs, std::vector<tripod_value>& outputs) {
  if (!context_) make_context();
  std::vector<tripod_value> in;
  for (const Tensor& t : inputs) in.push_back(as_value(t));
  const tripod_status status = api_->run(context_, in.data(), static_cast<int32_t>(in.size()), outputs.data(), static_cast<int32_t>(outputs.size()));
  if (hook_error_) std::rethrow_exception(std::exchange(hook_error_, nullptr));
  if (status != TRIPOD_OK) throw RunError(api_->last_error());
}

std::vector<Tensor> LoadedModel::run(const std::vector<Tensor>& inputs) {
  std::vector<tripod_value> out(static_cast<size_t>(api_->num_outputs()));
  call(inputs, out);
  std::vector<Tensor> results;
  for (const tripod_value& v : out) {
    Tensor t;
    t.dtype = static_cast<DType>(v.tensor.dtype);
    t.shape.assign(v.tensor.shape, v.tensor.shape + v.tensor.rank);
    const auto* data = static_cast<const std::byte*>(v.tensor.data);
    t.bytes.assign(data, data + byte_size(t.dtype, t.count()));
    results.push_back(std::move(t));
  }
  return results;
}

void LoadedModel::run_into(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  std::vector<tripod_value> out;
  for (const Tensor& t : outputs) out.push_back(as_value(t));
  call(inputs, out);
}

std::vector<Tensor> read_inputs(const std::string& folder, size_t count, bool* npy) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < count; ++i) {
    const std::string base = folder + "/input_" + std::to_string(i);
    const bool is_npy = std::filesystem::exists(base + ".npy");
    if (!is_npy && !std::filesystem::exists(base + ".pb")) throw CompileError({}, "neither " + base + ".pb nor .npy is there: the model has " + std::to_string(count) + " inputs");
    all.push_back(is_npy ? read_npy(base + ".npy") : read_tensor(base + ".pb"));
    if (npy) *npy = is_npy;
  }
  return all;
}

std::map<std::string, int64_t> parse_dims(const std::vector<std::string>& texts) {
  std::map<std::string, int64_t> dims;
  for (const std::string& t : texts) {
    const size_t eq = t.rfind('=');
    const std::string value = eq == std::string::npos ? "" : t.substr(eq + 1);
    char* end = nullptr;
    const long long v = std::strtoll(value.c_str(), &end, 10);
    if (value.empty() || *end || eq == 0 || v < 0) throw CompileError({}, "--dim wants NAME=VALUE, got \"" + t + "\"");
    dims[t.substr(0, eq)] = v;
  }
  return dims;
}

SizeReader::SizeReader(const nlohmann::json& manifest, const int64_t* values) {
  size_t i = 0;
  for (const auto& d : manifest.value("dims", nlohmann::json::array())) values_[d["name"]] = values[i++];
}

std::optional<int64_t> SizeReader::read(const nlohmann::json& size) const {
  if (size.is_number()) return size.get<int64_t>();
  if (!size.is_string()) return std::nullopt;
  sym::Context c;
  sym::Values values;
  std::map<std::string, sym::Expr, std::less<>> vars;
  try {
    const sym::Expr e = sym::parse(c, size.get<std::string>(), [&](std::string_view name) {
      const auto known = values_.find(std::string(name));
      if (known == values_.end()) return sym::Expr{};
      const auto [var, is_new] = vars.try_emplace(known->first);
      if (is_new) values[var->second = c.var(name)] = known->second;
      return var->second;
    });
    return e.is_const() ? e.value() : sym::evaluate(e, values);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<std::vector<int64_t>> SizeReader::read_shape(const nlohmann::json& shape) const {
  std::vector<int64_t> dims;
  for (const auto& d : shape) {
    const auto v = read(d);
    if (!v) return std::nullopt;
    dims.push_back(*v);
  }
  return dims;
}

}  // namespace tripod
