// The host program as text.
#include <fmt/format.h>

#include <algorithm>

#include "host/program.h"
#include "runtime/abi.h"

namespace tripod::host {
namespace {

std::string place(const Program& p, const Place& at) {
  switch (at.kind) {
    case Place::arena: return "%" + p.buffers[at.index].name;
    case Place::input: return "in:" + p.inputs[at.index].name;
    case Place::output: return "out:" + p.outputs[at.index].name;
    case Place::weight: return fmt::format("w+{}", at.offset);
    case Place::none: return "-";
    case Place::zero_size: return "empty";
  }
  return "?";
}

std::string list(const std::vector<Index>& es) {
  std::string s;
  for (const Index& e : es) s += (s.empty() ? "" : ", ") + sym::text(e);
  return "[" + s + "]";
}

// The places of numbers as #.
std::string shown(std::string text) {
  std::replace(text.begin(), text.end(), kTripodNumber, '#');
  return text;
}

std::string how(const LaunchCode& c) {
  if (!c.geometry.empty()) return " geometry " + list(c.geometry);
  return fmt::format(" extent {} grain {} scratch {}", sym::text(c.extent), c.grain, sym::text(c.scratch));
}

void print(const Program& p, const Steps& steps, int depth, std::string& out) {
  static const char* const kNames[] = {"segment", "output", "launch", "call", "copy", "store", "set_dim", "read_dim", "require", "branch", "loop"};
  for (const Step& s : steps) {
    out += fmt::format("{:>5} {}{}", s.id, std::string(static_cast<size_t>(depth) * 2, ' '), kNames[s.kind]);
    if (s.kind == Step::launch) out += " " + p.kernels[s.code.kernel];
    if (s.kind == Step::call) out += " " + s.symbol;
    if (s.kind == Step::segment || s.kind == Step::output) out += fmt::format(" {}", s.number);
    if (s.kind == Step::read_dim || s.kind == Step::set_dim) out += " " + p.symbols[s.number].name;
    for (const Place& at : s.places) out += " " + place(p, at);
    for (const View& v : s.views) out += " " + place(p, v.place);
    if (!s.dims.empty()) out += " " + list(s.dims);
    if (s.kind == Step::launch) out += how(s.code);
    for (const LaunchCode& v : s.variants) out += " or " + p.kernels[v.kernel] + how(v);
    if (!s.text.empty()) out += " \"" + shown(s.text) + "\"";
    if (s.site >= 0 && s.kind != Step::require) out += "  # " + p.sites[s.site];
    out += "\n";
    for (const Steps& b : s.body) print(p, b, depth + 1, out);
  }
}

}  // namespace

std::string text(const Program& p) {
  std::string out;
  for (const ArenaBuffer& b : p.buffers)
    out += fmt::format("buffer %{} bytes {} segment {} steps {}..{}\n", b.name, sym::text(b.bytes), b.segment, b.first, b.last);
  print(p, p.steps, 0, out);
  return out;
}

}  // namespace tripod::host
