// What tests/cuda/check_kernels.py runs: loop functions in text form to CUDA C, and to programs that run it on the CPU.
//
//   kernel_cases print FILE            the CUDA C of every function of FILE, geometry in comments
//   kernel_cases cpu FILE OUT BATCHES  writes OUT/batch_K.cc and OUT/batch_K.bin for K < BATCHES: kernels, inputs and
//                                      what the loop interpreter makes of them (run_cases.h reads them)
//   kernel_cases nvcc FILE CACHE NVCC  compiles every kernel for sm_90a and compute_80, warnings being errors
//
// A function in compute form is scheduled by the rules of the back end first, and gives one kernel or more, which run one
// after the other.
//
// `tile ROWS COLUMNS DEPTH STAGES WARP_ROWS WARP_COLUMNS SLICES SPLITS` in front of the values is the tile that the rule
// for tensor cores takes, or where the function is attention, `tile ROW_WARPS KEY_WARPS WARP_ROWS KEYS STAGES KEEP_QUERIES
// PACKED SPLITS` that of its rule.
//
// In FILE each function follows a line `// case dims N=5,C=3; N=1,C=1 values KIND` (dims: one run each; may be empty).
// Values: special (the type's extremes among them), small (0 to 15), unit (floats from -1 to 1), index K (0 to K-1).
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "backends/cuda/cuda_c.h"
#include "backends/cuda/kernel.h"
#include "backends/cuda/nvcc.h"
#include "backends/cuda/rules/attention.h"
#include "backends/cuda/rules/tensor_cores.h"
#include "loop/expand_math.h"
#include "loop/flatten.h"
#include "loop/interpreter.h"
#include "loop/ir.h"
#include "loop/scalar.h"

namespace tripod {
namespace {

struct Case {
  std::string text, values;
  std::vector<int64_t> tile;  // of the rule for tensor cores, as in TileShape, and the splits; empty: chosen
  std::vector<std::map<std::string, int64_t>> dims;
  size_t variant = SIZE_MAX;  // of the rule's result; SIZE_MAX: what is for all sizes
};

std::string trimmed(const std::string& s) {
  const size_t a = s.find_first_not_of(" \n"), b = s.find_last_not_of(" \n");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream in(path);
  std::stringstream all;
  all << in.rdbuf();
  const std::string text = all.str(), mark = "// case dims ";
  std::vector<Case> cases;
  for (size_t at = text.find(mark); at != std::string::npos;) {
    const size_t end = text.find('\n', at), next = text.find(mark, end);
    std::string head = text.substr(at + mark.size(), end - at - mark.size());
    Case c;
    c.text = text.substr(end + 1, next == std::string::npos ? next : next - end - 1);
    const size_t v = head.find("values ");
    c.values = trimmed(head.substr(v + 7));
    const size_t tile = std::min(head.find("tile "), v);
    std::stringstream runs(head.substr(0, tile)), sizes(tile < v ? head.substr(tile + 5, v - tile - 5) : "");
    for (int64_t n; sizes >> n;) c.tile.push_back(n);
    for (std::string run; std::getline(runs, run, ';');) {
      std::map<std::string, int64_t> dims;
      std::stringstream parts(run);
      for (std::string part; std::getline(parts, part, ',');)
        if (const size_t e = part.find('='); e != std::string::npos) dims[trimmed(part.substr(0, e))] = std::stoll(part.substr(e + 1));
      c.dims.push_back(dims);
    }
    if (c.dims.empty()) c.dims.emplace_back();
    cases.push_back(c);
    at = next;
  }
  return cases;
}

// Values that are the same in every run of the test.
class Values {
 public:
  Values(const std::string& kind) : kind_(kind) {}
  uint64_t next(DType t) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t r = state_ >> 33;
    if (kind_.starts_with("index ")) return loop::bits_from_int(t, static_cast<int64_t>(r % static_cast<uint64_t>(std::stoll(kind_.substr(6)))));
    if (kind_ == "small") return loop::bits_from_double(t, static_cast<double>(r % 16));
    if (kind_ == "unit" && is_float(t)) return loop::bits_from_double(t, static_cast<double>(r % 20001) / 10000.0 - 1.0);
    if (kind_ == "unit") return loop::bits_from_int(t, static_cast<int64_t>(r % 15) - (is_signed(t) ? 7 : 0));
    return special(t, r);
  }

 private:
  static uint64_t special(DType t, uint64_t r) {
    if (t == DType::b1) return r & 1;
    const int bits = info(t).bits;
    if (is_float(t)) {
      static constexpr double kFloats[] = {1,    -1,     2.5,   -2.5,        3.5,        0.5,         1e-3,  100.75, -127.9, 255.5, 65504, 70000,
                                           1e-6, 6e-8,   1e-40, 2147483647., 2147483648., -2147483649., 3e9, -3e9, 4294967296., 9.2e18, -9.3e18, 1.8e19,
                                           2e19, 3.4e38, -1e30, INFINITY,    -INFINITY,  NAN,         -0.75, 32768, -32769, 7, 16, 1e5};
      const uint64_t k = r % 64;
      if (k < std::size(kFloats)) return loop::bits_from_double(t, kFloats[k]);
      return loop::bits_from_double(t, (static_cast<double>(r / 64 % 200001) - 100000.0) / 64.0);
    }
    const int64_t least = is_signed(t) ? INT64_MIN >> (64 - bits) : 0;
    switch (r % 8) {
      case 0: return loop::canonical_bits(t, static_cast<uint64_t>(least));
      case 1: return loop::canonical_bits(t, static_cast<uint64_t>(least) - 1);
      case 2: return 0;
      case 3: return loop::canonical_bits(t, ~uint64_t{0});
      case 4: return loop::canonical_bits(t, r / 8 % 70);  // for shifts: around the widths
      default: return loop::canonical_bits(t, r * 0x9e3779b97f4a7c15ull >> 7);
    }
  }
  std::string kind_;
  uint64_t state_ = 42;
};

// One launch: a function, and the kernels that are printed from it (for 32-bit indices, and perhaps for 64-bit ones).
struct Compiled {
  loop::Function f;  // what has happened after the launch: those before it, and it
  std::vector<cuda::CudaKernel> kernels;
};

loop::Function scheduled(const loop::Function& f, sym::Context& c, const Case& k) {
  const std::vector<int64_t>& t = k.tile;
  if (t.empty()) {
    const cuda::RuleResult r = cuda::schedule(f, c, nullptr);
    if (k.variant >= r.variants.size()) return r.function;
    loop::Function one = r.variants[k.variant].function;
    one.name += "_variant" + std::to_string(k.variant);  // beside the others in one file
    return one;
  }
  const cuda::AttentionShape shape{t.at(0), t.at(1), t.at(2), t.at(3), static_cast<int>(t.at(4)), t.at(5) != 0};
  if (const cuda::RuleResult r = cuda::attention_with(f, c, {{shape, t.at(6) != 0, c.constant(t.at(7)), {}}}); r.outcome.applied) return r.function;
  cuda::TensorCoreOptions o;
  o.tile = cuda::TileShape{t.at(0), t.at(1), t.at(2), static_cast<int>(t.at(3)), t.at(4), t.at(5), t.at(6)};
  o.splits = t.at(7);
  o.tf32 = true;
  const cuda::RuleResult r = cuda::tensor_cores_with(f, c, o);
  if (!r.outcome.applied) throw std::runtime_error(f.name + ": " + r.outcome.reason);
  return r.function;
}

bool has_blocks(const loop::Function& f) {
  bool blocks = false;
  loop::visit(f.body, [&](const loop::Stmt& s) { blocks = blocks || s->kind == loop::StmtKind::block; });
  return blocks;
}

// A case for every variant that runs for some of its sizes.
std::vector<Case> by_variant(const Case& k) {
  sym::Context c;
  const loop::Function f = loop::parse(c, k.text);
  if (!k.tile.empty() || !has_blocks(f)) return {k};
  const auto variants = cuda::schedule(f, c, nullptr).variants;
  std::map<size_t, Case> cases;
  for (const auto& dims : k.dims) {
    sym::Values d;
    for (sym::Expr s : f.dims) d[s] = dims.at(s->name);
    size_t v = 0;
    while (v < variants.size() && !sym::evaluate(variants[v].when, d)) ++v;
    Case& one = cases.try_emplace(v, k).first->second;
    if (one.variant != v) one.dims.clear();
    one.variant = v;
    one.dims.push_back(dims);
  }
  std::vector<Case> all;
  for (auto& [v, one] : cases) all.push_back(std::move(one));
  return all;
}

std::vector<Compiled> compile_case(sym::Context& c, const Case& k) {
  loop::Function f = loop::parse(c, k.text);
  const bool blocks = has_blocks(f);
  if (blocks) f = loop::flatten(scheduled(f, c, k));
  f = loop::expand_math(f);
  for (const std::string& e : loop::verify(f)) throw std::runtime_error(f.name + ": " + e);
  std::vector<loop::Buffer> workspace;
  const std::vector<loop::Function> parts = blocks ? cuda::split_kernels(f, workspace) : std::vector<loop::Function>{f};
  std::vector<Compiled> r;
  std::vector<loop::Stmt> so_far;
  for (loop::Function part : parts) {
    part.params.insert(part.params.end(), workspace.begin(), workspace.end());
    part.num_outputs += static_cast<int>(workspace.size());
    const auto printed = cuda::print_kernel(part, part.name + (r.empty() ? "" : "_" + std::to_string(r.size())), c);
    so_far.push_back(part.body);
    part.body = loop::seq(so_far);
    r.push_back({part, printed});
  }
  return r;
}

std::vector<Case> all_cases(const std::string& path) {
  std::vector<Case> all;
  for (const Case& k : read_cases(path))
    for (Case& one : by_variant(k)) all.push_back(std::move(one));
  return all;
}

void print(const std::string& path) {
  std::cout << cuda::prelude();
  for (const Case& k : all_cases(path)) {
    sym::Context c;
    for (const Compiled& one : compile_case(c, k))
      for (const cuda::CudaKernel& kernel : one.kernels) {
        const cuda::Geometry& g = kernel.geometry;
        std::cout << "// params";
        for (const loop::Buffer& b : one.f.params) std::cout << " " << b->name << ": " << name(b->dtype) << " " << sym::text(loop::storage_size(c, b)) << ";";
        std::cout << "\n// dims";
        for (sym::Expr d : one.f.dims) std::cout << " " << d->name;
        std::cout << "\n// grid " << sym::text(g.grid[0]) << "; " << sym::text(g.grid[1]) << "; " << sym::text(g.grid[2]) << "; block "
                  << sym::text(g.block[0]) << "; " << sym::text(g.block[1]) << "; " << sym::text(g.block[2]) << "; shared "
                  << g.shared_bytes << (kernel.narrow ? "; when " + sym::text(kernel.narrow) : "") << "\n" << kernel.source << "\n";
      }
  }
}

class Writer {
 public:
  explicit Writer(const std::string& path) : out_(path, std::ios::binary) {}
  void number(int64_t v) { out_.write(reinterpret_cast<const char*>(&v), sizeof v); }
  void bytes(const void* p, size_t n) { number(static_cast<int64_t>(n)), out_.write(static_cast<const char*>(p), static_cast<std::streamsize>(n)); }

 private:
  std::ofstream out_;
};

using Memories = std::vector<loop::Memory>;

Memories made_up(const loop::Function& f, const sym::Values& d, const std::string& kind) {
  Values values(kind);
  Memories all;
  for (const loop::Buffer& b : f.params) {
    int64_t n = 1;
    for (sym::Expr e : b->layout.is_row_major() ? b->shape : b->layout.extents) n *= sym::evaluate(e, d);
    loop::Memory m;
    m.bytes.resize(static_cast<size_t>(byte_size(b->dtype, n)));
    for (int64_t e = 0; e < n; ++e) loop::write_element(b->dtype, m.bytes.data(), e, values.next(b->dtype));
    all.push_back(std::move(m));
  }
  return all;
}

// One launch that finds `memory`: that, what the interpreter makes of `initial` up to it (in `memory` afterwards), and
// every kernel printed from it.
void write_launch(const Compiled& k, const sym::Values& d, const Memories& initial, Memories& memory, size_t first_kernel, Writer& w) {
  const Memories before = std::move(memory);
  memory = initial;
  const loop::InterpretResult r = loop::interpret(k.f, d, memory);
  for (const std::string& v : r.violations) throw std::runtime_error(k.f.name + ": " + v);
  for (size_t i = 0; i < k.kernels.size(); ++i) {
    const cuda::Geometry& g = k.kernels[i].geometry;
    w.number(static_cast<int64_t>(first_kernel + i));
    for (sym::Expr e : g.grid) w.number(sym::evaluate(e, d));
    for (sym::Expr e : g.block) w.number(sym::evaluate(e, d));
    w.number(g.shared_bytes);
    w.number(r.failed_checks.empty() ? 0 : 1);
    w.number(static_cast<int64_t>(k.f.params.size()));
    for (size_t p = 0; p < before.size(); ++p) {
      w.number(static_cast<int64_t>(k.f.params[p]->dtype));
      w.bytes(before[p].bytes.data(), before[p].bytes.size());
      w.bytes(memory[p].bytes.data(), memory[p].bytes.size());
    }
    w.number(static_cast<int64_t>(k.f.dims.size()));
    for (sym::Expr s : k.f.dims) w.number(d.at(s));
  }
}

void write_run(const std::vector<Compiled>& launches, const std::map<std::string, int64_t>& dims, const std::string& kind, size_t first_kernel, Writer& w) {
  sym::Values d;
  for (sym::Expr s : launches[0].f.dims) d[s] = dims.at(s->name);
  const Memories initial = made_up(launches[0].f, d, kind);
  Memories memory = initial;
  for (const Compiled& k : launches) {
    write_launch(k, d, initial, memory, first_kernel, w);
    first_kernel += k.kernels.size();
  }
}

int cpu(const std::string& path, const std::string& out, size_t batches) {
  const std::vector<Case> cases = all_cases(path);
  int failed = 0;
  for (size_t b = 0; b < batches; ++b) {
    const std::string base = out + "/batch_" + std::to_string(b);
    Writer data(base + ".bin");
    std::ofstream source(base + ".cc");
    source << "#include \"cuda_on_cpu.h\"\n" << cuda::prelude();
    std::string table;
    size_t kernels = 0;
    for (size_t i = b; i < cases.size(); i += batches) {
      try {
        sym::Context c;
        const std::vector<Compiled> launches = compile_case(c, cases[i]);
        for (const auto& dims : cases[i].dims) write_run(launches, dims, cases[i].values, kernels, data);
        for (const Compiled& k : launches) {
          for (const cuda::CudaKernel& kernel : k.kernels) {
            source << kernel.source << "\n";
            table += "    {\"" + kernel.symbol + "\", [](const uint64_t* a) { call(" + kernel.symbol + ", a); }},\n";
          }
          kernels += k.kernels.size();
        }
      } catch (const std::exception& e) {
        std::cout << "FAILED " << e.what() << "\n" << cases[i].text << "\n";
        ++failed;
      }
    }
    source << "#include \"cuda/run_cases.h\"\nconst Kernel kKernels[] = {\n" << table << "};\n";
  }
  std::cout << cases.size() - static_cast<size_t>(failed) << " passed, " << failed << " failed\n";
  return failed != 0;
}

int nvcc(const std::string& path, const std::string& cache, const std::string& compiler) {
  std::vector<std::string> sources;
  for (const Case& k : all_cases(path)) {
    sym::Context c;
    for (const Compiled& one : compile_case(c, k))
      for (const cuda::CudaKernel& kernel : one.kernels) sources.push_back(kernel.source);
  }
  cuda::NvccOptions o;
  o.archs = {{90, false}, {80, true}};
  o.nvcc = compiler;
  o.cache_folder = cache;
  size_t bytes = 0;
  const std::vector<cuda::Image> images = cuda::compile(sources, o);
  for (const cuda::Image& i : images) bytes += i.bytes.size();
  std::cout << sources.size() << " kernels, " << images.size() << " images, " << bytes << " bytes\n";
  return 0;
}

}  // namespace
}  // namespace tripod

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 2 && args[0] == "print") return tripod::print(args[1]), 0;
    if (args.size() == 4 && args[0] == "cpu") return tripod::cpu(args[1], args[2], std::stoul(args[3]));
    if (args.size() == 4 && args[0] == "nvcc") return tripod::nvcc(args[1], args[2], args[3]);
  } catch (const tripod::CompileError& e) {
    std::cerr << e.diagnostics.text("nvcc");
    return 1;
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  std::cerr << "usage: kernel_cases print FILE | cpu FILE OUT BATCHES | nvcc FILE CACHE NVCC\n";
  return 2;
}
