// Names and scopes of the text.
#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "backends/cuda/printer.h"

namespace tripod::cuda {
namespace {

// Words that a name of the model must not take: C++'s, CUDA's, and the prelude's.
constexpr std::string_view kTaken[] = {
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const", "constexpr",
    "const_cast", "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
    "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable",
    "namespace", "new", "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public", "register",
    "reinterpret_cast", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct",
    "switch", "template", "this", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "union",
    "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "bitand", "bitor", "compl", "not_eq",
    "and_eq", "or_eq", "xor_eq", "thread_local", "char8_t", "char16_t", "char32_t", "concept", "requires", "co_await",
    "co_return", "co_yield", "restrict", "unix", "linux", "main", "std", "cuda", "assert", "NULL", "EOF", "INFINITY",
    "NAN", "error", "blockIdx", "threadIdx", "blockDim", "gridDim", "warpSize", "half", "uint", "ushort", "uchar",
    "min", "max", "abs", "exp", "log", "sin", "cos", "tan", "sqrt", "pow", "floor", "ceil", "trunc", "rint", "fma",
    "fmod", "fabs", "erf", "y0", "y1", "yn", "j0", "j1", "jn", "gamma", "signbit", "isnan", "isinf", "isfinite",
    "index", "time", "clock", "read", "write", "rand", "printf", "malloc", "free", "memcpy", "memset", "dim3",
    "f16", "bf16", "wrap_add", "wrap_sub", "wrap_mul", "wrap_neg", "wrap_abs", "shift_left", "shift_right", "safe_div",
    "safe_rem", "min_of", "max_of", "to_int", "to_u64", "to_f16", "to_bf16", "to_f32", "bits_as", "load_i4", "load_u4", "to_i4", "to_u4",
    "store_4bit", "load_vector", "store_vector", "floor_div", "floor_mod", "mma", "load_matrix", "load_matrix_transposed", "load_matrices", "load_matrices_transposed", "copy_async", "copy_async_commit", "copy_async_wait",
    "report", "exp2_fast", "warp_sum", "warp_max", "block_sum", "block_max"};

bool is_taken(std::string_view s) {
  return std::find(std::begin(kTaken), std::end(kTaken), s) != std::end(kTaken) || s.starts_with("tp_") ||
         s.starts_with("__");
}

}  // namespace

std::string identifier(const std::string& wanted) {
  std::string s;
  for (char c : wanted) s += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  s.erase(std::unique(s.begin(), s.end(), [](char a, char b) { return a == '_' && b == '_'; }), s.end());
  if (s.size() > 40) s.resize(40);
  while (!s.empty() && s.back() == '_') s.pop_back();
  if (s.empty()) s = "v";
  if (std::isdigit(static_cast<unsigned char>(s[0])) || s[0] == '_') s = "v" + s;
  return is_taken(s) ? s + "_" : s;
}

// Distinct in all open scopes: a local may be put in front of scopes that are open now.
std::string KernelPrinter::unique(const std::string& wanted, size_t scope) {
  const std::string base = identifier(wanted);
  const auto used = [&](const std::string& n) {
    return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.names.count(n) > 0; });
  };
  std::string n = base;
  for (int k = 2; used(n); ++k) n = base + (std::isdigit(static_cast<unsigned char>(base.back())) ? "_" : "") + std::to_string(k);
  scopes_[scope].names.insert(n);
  return n;
}

void KernelPrinter::line(const std::string& text, size_t scope) {
  scopes_[scope].lines += std::string(static_cast<size_t>(scopes_[scope].depth) * 2, ' ') + text + "\n";
}

void KernelPrinter::open(bool is_loop) {
  Scope s;
  s.depth = scopes_.back().depth + 1;
  s.is_loop = is_loop;
  scopes_.push_back(std::move(s));
}

std::string KernelPrinter::close() {
  std::string lines = std::move(scopes_.back().lines);
  scopes_.pop_back();
  return lines;
}

void KernelPrinter::bind(sym::Expr var, const std::string& name, size_t scope) {
  names_[var] = name;
  homes_[var] = scope;
}

}  // namespace tripod::cuda
