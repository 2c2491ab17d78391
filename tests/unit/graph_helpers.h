// Small modules from text, for the tests of src/graph.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "graph/graph.h"

namespace tripod::graph {

// A module whose main has these inputs (with an optional where) and this body; returns %y.
inline std::unique_ptr<Module> module_of(const std::string& inputs, const std::string& body,
                                         const std::string& where = "") {
  const std::string clause = where.empty() ? "" : " where " + where;
  return parse("graph @main(" + inputs + ")" + clause + " {\n" + body + "\n return %y\n}\n");
}

inline std::string first_error(const CompileError& e) { return e.diagnostics.errors()[0].message; }

// The type of %y, or the error.
inline std::string type_of(const std::string& inputs, const std::string& body, const std::string& where = "") {
  try {
    auto m = module_of(inputs, body, where);
    return text(m->main().type(m->main().outputs()[0]));
  } catch (const CompileError& e) {
    return "error: " + first_error(e);
  }
}

// The contents of %y as text, "none" without, or the error.
inline std::string contents_text(const std::string& inputs, const std::string& body, const std::string& where = "") {
  try {
    auto m = module_of(inputs, body, where);
    const auto& c = m->main().value(m->main().outputs()[0]).contents;
    if (!c) return "none";
    std::string s;
    for (Expr e : *c) s += (s.empty() ? "" : ", ") + sym::text(e);
    return "[" + s + "]";
  } catch (const CompileError& e) {
    return "error: " + first_error(e);
  }
}

}  // namespace tripod::graph
