#include "driver/manifest.h"

#include <nlohmann/json.hpp>

namespace tripod {

using Json = nlohmann::ordered_json;

static Json shape_of(const std::vector<sym::Expr>& dims) {
  Json shape = Json::array();
  for (const sym::Expr& d : dims) d.is_const() ? shape.push_back(d.value()) : shape.push_back(sym::text(d));
  return shape;
}

static Json io_list(const std::vector<host::IoSpec>& list) {
  Json all = Json::array();
  for (const host::IoSpec& io : list) {
    all.push_back({{"name", io.name}, {"dtype", name(io.dtype)}, {"shape", shape_of(io.shape)}});
  }
  return all;
}

// The steps that a step hook hears of (tripod_step): "id", what runs, its work (an index into "works"), and the values
// that are complete after it.
static void collect_steps(const host::Steps& steps, const host::Program& p, Json& out) {
  for (const host::Step& s : steps) {
    for (const host::Steps& b : s.body) collect_steps(b, p, out);
    Json j = {{"id", s.id}};
    if (s.kind == host::Step::launch) {
      j["kernel"] = p.kernels[s.code.kernel], j["extent"] = sym::text(s.code.extent), j["grain"] = s.code.grain;
      for (const host::LaunchCode& v : s.variants) j["variants"].push_back(p.kernels[v.kernel]);
    } else if (s.kind == host::Step::call) {
      j["operator"] = s.symbol;
    } else if (s.kind == host::Step::copy) {
      j["operator"] = "copy";
    } else {
      continue;
    }
    j["site"] = s.site >= 0 ? p.sites[s.site] : "";
    if (s.work >= 0) j["work"] = s.work;
    for (const host::Result& r : s.results) {
      Json v = {{"buffer", r.buffer}, {"value", r.value}, {"dtype", name(r.dtype)}, {"shape", shape_of(r.shape)}};
      if (!r.order.empty()) v["order"] = r.order;
      if (r.stored != r.dtype) v["stored"] = name(r.stored);
      j["results"].push_back(v);
    }
    out.push_back(j);
  }
}

static Json works_of(const host::Program& p) {
  Json all = Json::array();
  for (const host::Work& w : p.works) {
    Json j = {{"rule", w.rule}, {"nodes", w.nodes}};
    if (w.flops) j["flops"] = sym::text(w.flops);
    if (w.bytes) j["bytes"] = sym::text(w.bytes);
    all.push_back(j);
  }
  return all;
}

// Each buffer of the arenas: where it lies, its size, and the steps from which to which it is alive.
static Json memory_of(const host::Program& p) {
  Json all = Json::array();
  for (const host::ArenaBuffer& b : p.buffers) {
    const Json bytes = b.bytes.is_const() ? Json(b.bytes.value()) : Json(sym::text(b.bytes));
    all.push_back({{"segment", b.segment}, {"bytes", bytes}, {"first", b.first}, {"last", b.last}, {"value", b.name}});
  }
  return all;
}

std::string make_manifest(const Options& o, const graph::Module& m, const host::Program& p,
                          const std::unordered_map<std::string, std::string>& sources) {
  Json j;
  j["tool"] = std::string("tripod ") + kToolVersion;
  j["model"] = m.name;
  j["target"] = o.target;
  j["cpu"] = o.cpu;
  if (o.target == "cuda") j["arch"] = o.archs;
  if (o.exact_math) j["exact_math"] = true;
  if (o.debug_kernels) j["debug_kernels"] = true;
  if (o.precision != "f32") j["precision"] = o.precision;
  if (!o.aliases.empty()) j["aliases"] = o.aliases;
  j["inputs"] = io_list(p.inputs);
  j["outputs"] = io_list(p.outputs);
  for (const host::Symbol& s : p.symbols)
    j["dims"].push_back({{"name", s.name}, {"min", s.var->range.lo}, {"max", s.var->range.hi}, {"from", s.bound_by_input ? "input" : "data"}});
  Json steps = Json::array();
  collect_steps(p.steps, p, steps);
  j["steps"] = steps;
  j["works"] = works_of(p);
  j["memory"] = memory_of(p);
  if (o.keep_sources)
    for (const std::string& k : p.kernels)
      if (auto it = sources.find(k); it != sources.end()) j["kernels"].push_back({{"name", k}, {"loops", it->second}});
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // names may be no UTF-8
}

}  // namespace tripod
