// Value expressions. Every text has exactly the C type of its dtype (value_type), so that helpers deduce it.
#include <cmath>

#include "backends/cuda/printer.h"
#include "base/number_text.h"
#include "loop/scalar.h"

namespace tripod::cuda {

using loop::Op;

namespace {

bool is_small_float(DType t) { return t == DType::f16 || t == DType::bf16; }
bool is_f8(DType t) { return is_float(t) && info(t).bits == 8; }
// Arithmetic on these is int's in C++ and has to be brought back.
bool is_promoted(DType t) { return is_int(t) && info(t).bits < 32; }

Text call(const std::string& f, std::initializer_list<Text> args) {
  std::string s = f + "(";
  bool first = true;
  for (const Text& a : args) s += (first ? "" : ", ") + a.s, first = false;
  return {s + ")"};
}

Text infix(const Text& a, const char* op, const Text& b, Level level) {
  // Bits, shifts and comparisons take parentheses around anything but a sum.
  const Level left = level == kBits ? kUnary : level == kOrder || level == kEqual ? kSum : level;
  const Level right = level == kBits ? kUnary : level == kOrder || level == kEqual ? kSum : static_cast<Level>(level + 1);
  return {within(a, left) + op + within(b, right), level};
}

Text converted(const std::string& type, const Text& v) { return {"(" + type + ")" + within(v, kUnary), kUnary}; }

}  // namespace

bool is_nibble(DType t) { return info(t).bits == 4; }

std::string memory_type(DType t) {
  switch (t) {
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i8: return "signed char";
    case DType::i16: return "short";
    case DType::i32: return "int";
    case DType::i64: return "long long";
    case DType::u16: return "unsigned short";
    case DType::u32: return "unsigned";
    case DType::u64: return "unsigned long long";
    default: return "unsigned char";
  }
}

std::string value_type(DType t) { return t == DType::b1 ? "bool" : t == DType::i4 ? "signed char" : memory_type(t); }

Text constant_text(DType t, uint64_t bits) {
  if (t == DType::b1) return {bits ? "true" : "false"};
  if (is_small_float(t) ) return {value_type(t) + "{" + hex(bits) + "}"};
  if (t == DType::f32 || t == DType::f64) {
    const double v = loop::double_from_bits(t, bits);
    const bool f32 = t == DType::f32;
    if (!std::isfinite(v)) return {std::string("bits_as<") + (f32 ? "float>(" + hex(bits) + "u)" : "double>(" + hex(bits) + "ull)")};
    std::string s = f32 ? shortest(static_cast<float>(v)) : shortest(v);
    if (s.find_first_of(".e") == std::string::npos) s += ".0";
    return {s + (f32 ? "f" : ""), s[0] == '-' ? kUnary : kPrimary};
  }
  if (t == DType::i64 || t == DType::i32) {
    const int64_t v = static_cast<int64_t>(bits);
    const std::string suffix = t == DType::i64 ? "ll" : "";
    // The least value is no literal: 2147483648 does not fit.
    if (v == (t == DType::i64 ? INT64_MIN : INT32_MIN)) return {"(" + std::to_string(v + 1) + suffix + " - 1)"};
    return {std::to_string(v) + suffix, v < 0 ? kUnary : kPrimary};
  }
  if (t == DType::u64) return {std::to_string(bits) + "ull"};
  if (t == DType::u32) return {(bits >= 0x10000 ? hex(bits) : std::to_string(bits)) + "u"};
  const std::string v = is_int(t) && is_signed(t) ? std::to_string(static_cast<int64_t>(bits)) : std::to_string(bits);
  return {"(" + value_type(t) + ")" + v, kUnary};
}

// --- what occurs twice ---------------------------------------------------------------------------------------------

// Expressions of equal structure have one number.
int KernelPrinter::number(const loop::Expr& e) {
  if (const auto it = numbers_.find(e.get()); it != numbers_.end()) return it->second;
  std::string key = std::to_string(static_cast<int>(e->op)) + ":" + std::to_string(static_cast<int>(e->dtype)) + ":";
  for (const loop::Expr& a : e->args) key += std::to_string(number(a)) + ",";
  key += "#" + std::to_string(e->bits);
  const auto add = [&](sym::Expr i) { key += "i" + (i ? std::to_string(i->id) : ""); };
  if (e->op == Op::index) add(e->value);
  if (e->op == Op::load) {
    key += "b" + std::to_string(reinterpret_cast<uintptr_t>(e->buffer.get()));
    for (sym::Expr i : e->indices) add(i);
    add(e->guard);
    if (e->other) key += "o" + std::to_string(number(e->other));
  }
  const auto [it, is_new] = number_of_.emplace(key, static_cast<int>(number_of_.size()));
  kept_.push_back(e);
  return numbers_[e.get()] = it->second;
}

static bool is_leaf(const loop::Expr& e) {
  return e->op == Op::constant || (e->op == Op::index && (e->value.is_const() || e->value.is_var()));
}

void KernelPrinter::count(const loop::Expr& e) {
  if (!e || is_leaf(e) || ++uses_[number(e)] > 1) return;
  for (const loop::Expr& a : e->args) count(a);
  count(e->other);
}

std::string KernelPrinter::local_name(const loop::ExprNode& e) const {
  if (e.op == Op::load) return e.buffer->name + "_value";
  if (loop::is_math(e.op) || e.op == Op::sqrt || e.op == Op::exp2_fast || e.op == Op::min || e.op == Op::max || e.op == Op::abs)
    return std::string(loop::name(e.op)) + "_value";
  return e.dtype == DType::b1 ? "is" : "t";
}

// Operands first, so that the locals stand in the order in which they are needed.
void KernelPrinter::name_shared(const loop::Expr& e) {
  if (!e || is_leaf(e)) return;
  const int n = number(e);
  if (shared_.count(n) || lanes_.count(n)) return;
  for (const loop::Expr& a : e->args) name_shared(a);
  name_shared(e->other);
  constexpr size_t kLongLine = 96;
  const bool twice = uses_[n] > 1;
  const Text t = expr(e);
  if (!twice && t.s.size() < kLongLine) return;
  const std::string name = unique(local_name(*e), scopes_.size() - 1);
  line("const " + value_type(e->dtype) + " " + name + " = " + t.s + ";");
  shared_[n] = name;
}

Text KernelPrinter::value(const loop::Expr& e) {
  uses_.clear();
  shared_.clear();
  count(e);
  for (const loop::Expr& a : e->args) name_shared(a);
  name_shared(e->other);
  return expr(e);
}

// --- operations ----------------------------------------------------------------------------------------------------

Text KernelPrinter::expr(const loop::Expr& e) {
  if (!shared_.empty() || !lanes_.empty()) {
    const int n = number(e);
    if (const auto it = shared_.find(n); it != shared_.end()) return {it->second};
    if (const auto it = lanes_.find(n); it != lanes_.end()) {
      const Text t{it->second + "[" + variable(lane_) + "]"};
      return e->dtype == DType::b1 ? Text{t.s + " != 0", kEqual} : t;
    }
  }
  switch (e->op) {
    case Op::constant: return constant_text(e->dtype, e->bits);
    case Op::load: return load(*e);
    case Op::index: return index_value(*e);
    case Op::cast: return cast(e->args[0]->dtype, e->dtype, expr(e->args[0]));
    case Op::bitcast: {
      const DType from = e->args[0]->dtype, to = e->dtype;
      const Text v = expr(e->args[0]);
      if (value_type(from) == value_type(to)) return v;
      return call("bits_as<" + value_type(to) + ">", {v});
    }
    case Op::select: {
      const Text c = expr(e->args[0]), a = expr(e->args[1]), b = expr(e->args[2]);
      return {within(c, kOr) + " ? " + within(a, kOr) + " : " + within(b, kConditional), kConditional};
    }
    default: break;
  }
  TRIPOD_CHECK(!loop::is_math(e->op), std::string(loop::name(e->op)) + " must be expanded before it is printed");
  const DType t = e->args[0]->dtype;
  if (t == DType::f32 || t == DType::f64) return operation(*e);
  return int_operation(*e);
}

// On f32 and f64.
Text KernelPrinter::operation(const loop::ExprNode& e) {
  const bool f32 = e.args[0]->dtype == DType::f32;
  const Text a = expr(e.args[0]);
  const Text b = e.args.size() > 1 ? expr(e.args[1]) : Text{};
  const auto function = [&](const std::string& f) { return e.args.size() > 1 ? call(f, {a, b}) : call(f, {a}); };
  const auto math = [&](const std::string& f) { return function(f32 ? f + "f" : f); };
  switch (e.op) {
    case Op::add: return infix(a, " + ", b, kSum);
    case Op::sub: return infix(a, " - ", b, kSum);
    case Op::mul: return infix(a, " * ", b, kProduct);
    case Op::div: return infix(a, " / ", b, kProduct);
    case Op::rem: return math("fmod");
    case Op::min: return function("min_of");
    case Op::max: return function("max_of");
    case Op::neg: return {"-" + within(a, kPrimary), kUnary};
    case Op::abs: return math("fabs");
    case Op::sqrt: return math("sqrt");
    case Op::floor: return math("floor");
    case Op::ceil: return math("ceil");
    case Op::trunc: return math("trunc");
    case Op::rint: return math("rint");
    case Op::exp2_fast: return function("exp2_fast");
    case Op::fma: return call(f32 ? "fmaf" : "fma", {a, b, expr(e.args[2])});
    case Op::lt: return infix(a, " < ", b, kOrder);
    case Op::le: return infix(a, " <= ", b, kOrder);
    case Op::eq: return infix(a, " == ", b, kEqual);
    case Op::ne: return infix(a, " != ", b, kEqual);
    default: internal_error(__FILE__, __LINE__, "no text for " + std::string(loop::name(e.op)) + " on floats");
  }
}

// On integers and b1. Unsigned 32- and 64-bit arithmetic is C's; signed arithmetic must wrap, narrow types come back
// from int: helpers.
Text KernelPrinter::int_operation(const loop::ExprNode& e) {
  const DType t = e.args[0]->dtype;
  const bool plain = !is_signed(t) && !is_promoted(t);
  const Text a = expr(e.args[0]);
  const Text b = e.args.size() > 1 ? expr(e.args[1]) : Text{};
  const auto wrapped = [&](const char* op, Level level, const char* helper) {
    return plain ? infix(a, op, b, level) : call(helper, {a, b});
  };
  const auto bits = [&](const char* op) {
    const Text r = infix(a, op, b, kBits);
    return is_promoted(t) ? converted(value_type(t), r) : r;
  };
  const bool by_constant = e.args.size() > 1 && e.args[1]->op == Op::constant;
  const int64_t constant = by_constant ? static_cast<int64_t>(e.args[1]->bits) : 0;
  // By a constant C's division and shift are right, unless the result has to be narrowed.
  const bool simple_divisor = by_constant && constant != 0 && !(is_signed(t) && constant == -1) && !is_promoted(t);
  const bool simple_shift = by_constant && constant >= 0 && constant < info(t).bits && !is_promoted(t);
  if (t == DType::b1) {
    switch (e.op) {
      case Op::bit_and: return infix(a, " && ", b, kAnd);
      case Op::bit_or:
        return {within(a, a.level == kAnd ? kEqual : kOr) + " || " + within(b, b.level == kAnd ? kEqual : kOr), kOr};
      case Op::bit_xor:
      case Op::ne: return {within(a, kUnary) + " != " + within(b, kUnary), kEqual};
      case Op::eq: return {within(a, kUnary) + " == " + within(b, kUnary), kEqual};
      case Op::bit_not: return {"!" + within(a, kUnary), kUnary};
      case Op::lt: return {"!" + within(a, kUnary) + " && " + within(b, kEqual), kAnd};
      case Op::le: return {"!" + within(a, kUnary) + " || " + within(b, kEqual), kOr};
      case Op::min: return infix(a, " && ", b, kAnd);
      case Op::max: return {within(a, a.level == kAnd ? kEqual : kOr) + " || " + within(b, b.level == kAnd ? kEqual : kOr), kOr};
      default: internal_error(__FILE__, __LINE__, "no text for " + std::string(loop::name(e.op)) + " on b1");
    }
  }
  switch (e.op) {
    case Op::add: return wrapped(" + ", kSum, "wrap_add");
    case Op::sub: return wrapped(" - ", kSum, "wrap_sub");
    case Op::mul: return wrapped(" * ", kProduct, "wrap_mul");
    case Op::fma: {
      const Text c = expr(e.args[2]);
      if (plain) return infix(infix(a, " * ", b, kProduct), " + ", c, kSum);
      return call("wrap_add", {call("wrap_mul", {a, b}), c});
    }
    case Op::div: return simple_divisor ? infix(a, " / ", b, kProduct) : call("safe_div", {a, b});
    case Op::rem: return simple_divisor ? infix(a, " % ", b, kProduct) : call("safe_rem", {a, b});
    case Op::min: return call("min_of", {a, b});
    case Op::max: return call("max_of", {a, b});
    case Op::neg: return plain ? Text{"-" + within(a, kPrimary), kUnary} : call("wrap_neg", {a});
    case Op::abs: return is_signed(t) ? call("wrap_abs", {a}) : a;
    case Op::lt: return infix(a, " < ", b, kOrder);
    case Op::le: return infix(a, " <= ", b, kOrder);
    case Op::eq: return infix(a, " == ", b, kEqual);
    case Op::ne: return infix(a, " != ", b, kEqual);
    case Op::bit_and: return bits(" & ");
    case Op::bit_or: return bits(" | ");
    case Op::bit_xor: return bits(" ^ ");
    case Op::bit_not: {
      const Text r{"~" + within(a, kUnary), kUnary};
      return is_promoted(t) ? converted(value_type(t), r) : r;
    }
    case Op::shl:
      if (simple_shift && !is_signed(t)) return infix(a, " << ", {std::to_string(constant)}, kBits);
      return call("shift_left", {a, b});
    case Op::shr:
      if (simple_shift) return infix(a, " >> ", {std::to_string(constant)}, kBits);
      return call("shift_right", {a, b});
    default: internal_error(__FILE__, __LINE__, "no text for " + std::string(loop::name(e.op)) + " on integers");
  }
}

Text KernelPrinter::cast(DType from, DType to, const Text& v) {
  if (from == to) return v;
  if (is_small_float(from)) return cast(DType::f32, to, call("to_f32", {v}));
  if (is_small_float(to)) {
    TRIPOD_CHECK(from != DType::f64, "a cast of f64 to a small float must be expanded before it is printed");
    return call(to == DType::f16 ? "to_f16" : "to_bf16", {cast(from, DType::f32, v)});
  }
  TRIPOD_CHECK(!is_f8(from) && !is_f8(to), "a cast of f8 must be expanded before it is printed");
  if (to == DType::b1) return {within(v, kUnary) + " != " + (is_float(from) ? (from == DType::f32 ? "0.0f" : "0.0") : "0"), kEqual};
  if (is_nibble(to)) {
    const Text byte = cast(from, is_signed(to) ? DType::i8 : DType::u8, v);
    return call(to == DType::i4 ? "to_i4" : "to_u4", {byte});
  }
  if (!is_float(from) || is_float(to)) return converted(value_type(to), v);
  if (to == DType::u64) return call("to_u64", {v});
  const bool wide = to == DType::i64 || to == DType::u32;
  const Text i = call(wide ? "to_int<long long>" : "to_int<int>", {v});
  return to == DType::i64 || to == DType::i32 ? i : converted(value_type(to), i);
}

// An index as a value is exact whatever its size: where 32 bits may not do, the arithmetic is 64-bit.
Text KernelPrinter::index_value(const loop::ExprNode& e) {
  if (e.dtype == DType::b1) {
    const Text t = index(e.value);
    return e.value->op >= sym::Op::lt && e.value->op <= sym::Op::logical_not ? t : Text{within(t, kUnary) + " != 0", kEqual};
  }
  const Text i = index(e.value);
  const DType from = narrow_ ? DType::i32 : DType::i64;
  return from == e.dtype ? i : cast(from, e.dtype, i);
}

}  // namespace tripod::cuda
