// What the tests of the loop IR share: running a function on made-up inputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "loop/interpreter.h"
#include "loop/ir.h"
#include "loop/scalar.h"

namespace tripod::loop {

inline sym::Values dims_of(const Function& f, const std::map<std::string, int64_t>& dims) {
  sym::Values v;
  for (Index d : f.dims) v[d] = dims.at(d->name);
  return v;
}

// Small numbers that differ from element to element, exact in every float type's sums.
inline std::vector<Memory> made_up_params(const Function& f, const sym::Values& dims) {
  std::vector<Memory> params;
  uint32_t state = 12345;
  for (const Buffer& b : f.params) {
    int64_t n = 1;
    for (Index d : b->layout.is_row_major() ? b->shape : b->layout.extents) n *= sym::evaluate(d, dims);
    Memory m;
    m.bytes.resize(static_cast<size_t>(byte_size(b->dtype, n)));
    for (int64_t i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      write_element(b->dtype, m.bytes.data(), i, bits_from_double(b->dtype, static_cast<double>(state >> 28)));
    }
    params.push_back(std::move(m));
  }
  return params;
}

inline std::vector<double> values_of(DType t, const Memory& m) {
  std::vector<double> v;
  for (int64_t i = 0; i < static_cast<int64_t>(m.bytes.size()) * 8 / info(t).bits; ++i)
    v.push_back(double_from_bits(t, read_element(t, m.bytes.data(), i)));
  return v;
}

// The bytes of all parameters after a run without violations.
inline std::vector<std::vector<std::byte>> outcome(const Function& f, const std::map<std::string, int64_t>& dims) {
  const sym::Values d = dims_of(f, dims);
  std::vector<Memory> params = made_up_params(f, d);
  // Outputs start as zeros, so that what nobody writes compares equal.
  for (size_t i = params.size() - static_cast<size_t>(f.num_outputs); i < params.size(); ++i)
    std::fill(params[i].bytes.begin(), params[i].bytes.end(), std::byte{0});
  const InterpretResult r = interpret(f, d, params);
  for (const std::string& v : r.violations) ADD_FAILURE() << v << "\n" << text(f);
  std::vector<std::vector<std::byte>> bytes;
  for (Memory& m : params) bytes.push_back(std::move(m.bytes));
  return bytes;
}

inline Function parsed(sym::Context& c, const std::string& text) {
  const Function f = parse(c, text);
  for (const std::string& e : verify(f)) ADD_FAILURE() << e;
  return f;
}

}  // namespace tripod::loop
