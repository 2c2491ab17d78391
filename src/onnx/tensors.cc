#include "onnx/tensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "onnx/op_importer.h"

namespace tripod::importer {
namespace fs = std::filesystem;
using ::onnx::TensorProto;

std::optional<DType> dtype_of(int32_t t) {
  switch (t) {
    case TensorProto::FLOAT:
      return DType::f32;
    case TensorProto::DOUBLE:
      return DType::f64;
    case TensorProto::FLOAT16:
      return DType::f16;
    case TensorProto::BFLOAT16:
      return DType::bf16;
    case TensorProto::INT8:
      return DType::i8;
    case TensorProto::INT16:
      return DType::i16;
    case TensorProto::INT32:
      return DType::i32;
    case TensorProto::INT64:
      return DType::i64;
    case TensorProto::UINT8:
      return DType::u8;
    case TensorProto::UINT16:
      return DType::u16;
    case TensorProto::UINT32:
      return DType::u32;
    case TensorProto::UINT64:
      return DType::u64;
    case TensorProto::BOOL:
      return DType::b1;
    case TensorProto::INT4:
      return DType::i4;
    case TensorProto::UINT4:
      return DType::u4;
    case TensorProto::FLOAT8E4M3FN:
      return DType::f8e4m3fn;
    case TensorProto::FLOAT8E4M3FNUZ:
      return DType::f8e4m3fnuz;
    case TensorProto::FLOAT8E5M2:
      return DType::f8e5m2;
    case TensorProto::FLOAT8E5M2FNUZ:
      return DType::f8e5m2fnuz;
    case TensorProto::STRING:
      return DType::string;
    default:
      return std::nullopt;
  }
}

std::string onnx_type_name(int32_t t) {
  return TensorProto::DataType_IsValid(t) ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(t))
                                          : "number " + std::to_string(t);
}

std::string dims_text(const Ints& dims) {
  std::string s = "[";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
  return s + "]";
}

int64_t checked_count(const Ints& dims, DType dtype) {
  int64_t count = 1;
  bool overflow = false, empty = false;
  for (int64_t d : dims) {
    if (d < 0) throw NodeError{"negative dim in the shape " + dims_text(dims), ""};
    if (d == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(count, d, &count);
  }
  if (overflow || count > std::numeric_limits<int64_t>::max() / 8 / std::max(info(dtype).bits, 8))
    throw NodeError{"the shape " + dims_text(dims) + " has more elements than memory can hold", ""};
  return empty ? 0 : count;
}

// --- external data ------------------------------------------------------------------------------------------------

struct TensorReader::Mapping {
  const std::byte* data = nullptr;
  int64_t size = 0;
  ~Mapping() {
    if (data) munmap(const_cast<std::byte*>(data), static_cast<size_t>(size));
  }
};

// The file must lie in the model's folder: neither the path as written nor what it resolves to may leave it, and the
// file itself may not be a link. (A model is untrusted; otherwise it could read any file of the user into model.so.)
std::shared_ptr<const TensorReader::Mapping> TensorReader::map_file(const std::string& location) {
  if (auto it = files_.find(location); it != files_.end()) return it->second;
  if (folder_.empty())
    throw NodeError{"external data '" + location + "' needs the model as a file, it was given as bytes", ""};
  const fs::path relative(location);
  if (location.empty() || relative.is_absolute())
    throw NodeError{"the external data location '" + location + "' must be a path relative to the model's folder", ""};
  if (location.find('\0') != std::string::npos) throw NodeError{"the external data location has a zero byte", ""};
  for (const fs::path& part : relative)
    if (part == "..")
      throw NodeError{"the external data location '" + location + "' leaves the model's folder", "remove the '..'"};

  std::error_code ec;
  const fs::path root = fs::canonical(folder_, ec);
  const fs::path full = root / relative;
  const fs::file_status status = fs::symlink_status(full, ec);
  if (status.type() == fs::file_type::not_found)
    throw NodeError{"the external data file '" + location + "' does not exist",
                    "it is looked for in the folder of the model"};
  if (status.type() == fs::file_type::symlink)
    throw NodeError{"the external data file '" + location + "' is a symbolic link",
                    "put the file itself into the model's folder"};
  if (status.type() != fs::file_type::regular)
    throw NodeError{"the external data location '" + location + "' is not a regular file", ""};
  const fs::path real = fs::canonical(full, ec);
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  if (ec || end != root.end())
    throw NodeError{"the external data location '" + location + "' leaves the model's folder through a link", ""};

  const int fd = open(real.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) throw NodeError{"cannot read the external data file '" + location + "': " + std::strerror(errno), ""};
  struct stat st {};
  auto mapping = std::make_shared<Mapping>();
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
    void* p = mmap(nullptr, static_cast<size_t>(st.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      const int error = errno;
      close(fd);
      throw NodeError{"cannot map the external data file '" + location + "': " + std::strerror(error), ""};
    }
    mapping->data = static_cast<const std::byte*>(p);
    mapping->size = st.st_size;
  }
  close(fd);
  return files_[location] = mapping;
}

namespace {
int64_t parse_offset(const std::string& text, const char* key) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || v < 0)
    throw NodeError{"the " + std::string(key) + " '" + text + "' of the external data is not a size", ""};
  return v;
}
}  // namespace

TensorData TensorReader::read_external(const TensorProto& t, TensorData r, int64_t need) {
  std::string location;
  int64_t offset = 0, length = -1;
  for (const auto& e : t.external_data()) {
    if (e.key() == "location") location = e.value();
    if (e.key() == "offset") offset = parse_offset(e.value(), "offset");
    if (e.key() == "length") length = parse_offset(e.value(), "length");
  }
  if (r.dtype == DType::string) throw NodeError{"strings cannot be external data", ""};
  const auto mapping = map_file(location);
  if (length >= 0 && length != need)
    throw NodeError{"the external data has " + std::to_string(length) + " bytes, " + std::string(name(r.dtype)) +
                        dims_text(r.dims) + " needs " + std::to_string(need),
                    ""};
  if (offset > mapping->size || need > mapping->size - offset)
    throw NodeError{"the external data ends at byte " + std::to_string(offset) + " + " + std::to_string(need) +
                        ", the file '" + location + "' has " + std::to_string(mapping->size),
                    "the file is damaged or not the one that belongs to the model"};
  r.bytes.owner = mapping;
  r.bytes.data = mapping->data + (need ? offset : 0);
  r.bytes.size = need;
  return r;
}

// --- data inside the protobuf -------------------------------------------------------------------------------------

namespace {

template <class To, class From>
graph::ConstAttr narrowed(const From& field, int64_t count) {
  auto out = std::make_shared<std::vector<To>>(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) (*out)[i] = static_cast<To>(field.Get(static_cast<int>(i)));
  graph::ConstAttr c;
  c.data = reinterpret_cast<const std::byte*>(out->data());
  c.size = count * static_cast<int64_t>(sizeof(To));
  c.owner = std::move(out);
  return c;
}

template <class From>
graph::ConstAttr shared(const From& field, const std::shared_ptr<const void>& owner, int64_t bytes) {
  graph::ConstAttr c;
  c.owner = owner;
  c.data = reinterpret_cast<const std::byte*>(field.data());
  c.size = bytes;
  return c;
}

}  // namespace

TensorData TensorReader::read(const TensorProto& t) {
  TensorData r;
  const auto dtype = dtype_of(t.data_type());
  if (!dtype) throw NodeError{"the element type " + onnx_type_name(t.data_type()) + " is not supported", ""};
  if (t.has_segment()) throw NodeError{"a tensor in segments is not supported", ""};
  r.dtype = *dtype;
  if (t.dims_size() > kMostDims)
    throw NodeError{
        "has " + std::to_string(t.dims_size()) + " dims, at most " + std::to_string(kMostDims) + " are supported", ""};
  r.dims.assign(t.dims().begin(), t.dims().end());
  const int64_t count = checked_count(r.dims, r.dtype);
  const int64_t need = byte_size(r.dtype, count);
  const std::string type = std::string(name(r.dtype)) + dims_text(r.dims);

  if (t.data_location() == TensorProto::EXTERNAL) return read_external(t, std::move(r), need);
  if (t.has_raw_data()) {
    if (r.dtype == DType::string) throw NodeError{"strings cannot be raw data", ""};
    if (static_cast<int64_t>(t.raw_data().size()) != need)
      throw NodeError{
          "has " + std::to_string(t.raw_data().size()) + " bytes of data, " + type + " needs " + std::to_string(need),
          ""};
    r.bytes = shared(t.raw_data(), owner_, need);
    return r;
  }
  const auto expect = [&](int64_t have, int64_t want) {
    if (have != want)
      throw NodeError{"has " + std::to_string(have) + " elements of data, " + type + " needs " + std::to_string(want),
                      ""};
  };
  switch (r.dtype) {
    case DType::f32:
      expect(t.float_data_size(), count);
      r.bytes = shared(t.float_data(), owner_, need);
      break;
    case DType::f64:
      expect(t.double_data_size(), count);
      r.bytes = shared(t.double_data(), owner_, need);
      break;
    case DType::i64:
      expect(t.int64_data_size(), count);
      r.bytes = shared(t.int64_data(), owner_, need);
      break;
    case DType::u64:
      expect(t.uint64_data_size(), count);
      r.bytes = shared(t.uint64_data(), owner_, need);
      break;
    case DType::u32:
      expect(t.uint64_data_size(), count);
      r.bytes = narrowed<uint32_t>(t.uint64_data(), count);
      break;
    case DType::i32:
      expect(t.int32_data_size(), count);
      r.bytes = shared(t.int32_data(), owner_, need);
      break;
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      expect(t.int32_data_size(), count);
      r.bytes = narrowed<uint16_t>(t.int32_data(), count);
      break;
    case DType::i4:
    case DType::u4:  // each entry is a packed byte
      expect(t.int32_data_size(), need);
      r.bytes = narrowed<uint8_t>(t.int32_data(), need);
      break;
    case DType::string:
      expect(t.string_data_size(), count);
      r.bytes.strings.assign(t.string_data().begin(), t.string_data().end());
      break;
    default:
      expect(t.int32_data_size(), count);
      r.bytes = narrowed<uint8_t>(t.int32_data(), count);
  }
  return r;
}

TensorData TensorReader::read_sparse(const ::onnx::SparseTensorProto& t) {
  const TensorData values = read(t.values());
  const TensorData indices = read(t.indices());
  TensorData r;
  r.dtype = values.dtype;
  if (t.dims_size() > kMostDims) throw NodeError{"has too many dims", ""};
  r.dims.assign(t.dims().begin(), t.dims().end());
  const int64_t count = checked_count(r.dims, r.dtype);
  const int64_t rank = static_cast<int64_t>(r.dims.size());
  const int64_t size = info(r.dtype).bits / 8;
  if (r.dtype == DType::string || size * 8 != info(r.dtype).bits)
    throw NodeError{"a sparse tensor of " + std::string(name(r.dtype)) + " is not supported", ""};
  if (values.dims.size() != 1) throw NodeError{"the values of a sparse tensor must have rank 1", ""};
  const int64_t stored = values.dims[0];
  const bool linear = indices.dims.size() == 1;
  if (indices.dtype != DType::i64 || indices.dims.empty() || indices.dims[0] != stored ||
      (!linear && (indices.dims.size() != 2 || indices.dims[1] != rank)))
    throw NodeError{"the indices of a sparse tensor must be i64[" + std::to_string(stored) + "] or i64[" +
                        std::to_string(stored) + ", " + std::to_string(rank) + "]",
                    ""};
  // A few bytes may stand for any amount of memory here: 256 MB dense are the limit.
  if (count * size > (int64_t{1} << 28)) throw NodeError{"a sparse tensor of " + dims_text(r.dims) + " is too large", ""};

  auto dense = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count * size));
  int64_t previous = -1;
  for (int64_t i = 0; i < stored; ++i) {
    int64_t flat = 0;
    for (int64_t d = 0; d < (linear ? 1 : rank); ++d) {
      int64_t index;
      std::memcpy(&index, indices.bytes.data + (linear ? i : i * rank + d) * 8, 8);
      const int64_t extent = linear ? count : r.dims[d];
      if (index < 0 || index >= extent)
        throw NodeError{"index " + std::to_string(index) + " of a sparse tensor is out of range", ""};
      flat = flat * extent + index;
    }
    if (flat <= previous) throw NodeError{"the indices of a sparse tensor must be sorted and distinct", ""};
    previous = flat;
    std::memcpy(dense->data() + flat * size, values.bytes.data + i * size, static_cast<size_t>(size));
  }
  r.bytes.data = dense->data();
  r.bytes.size = count * size;
  r.bytes.owner = std::move(dense);
  return r;
}

}  // namespace tripod::importer
