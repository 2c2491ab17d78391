#include "driver/manifest.h"

#include <nlohmann/json.hpp>

namespace tripod {

using Json = nlohmann::ordered_json;

static Json io_list(const std::vector<host::IoSpec>& list) {
  Json all = Json::array();
  for (const host::IoSpec& io : list) {
    Json shape = Json::array();
    for (const sym::Expr& d : io.shape) {
      if (d.is_const())
        shape.push_back(d.value());
      else
        shape.push_back(sym::text(d));
    }
    all.push_back({{"name", io.name}, {"dtype", name(io.dtype)}, {"shape", shape}});
  }
  return all;
}

static void collect_launches(const host::Steps& steps, const host::Program& p, Json& out) {
  for (const host::Step& s : steps) {
    if (s.kind == host::Step::launch) {
      out.push_back({{"kernel", p.kernels[s.code.kernel]}, {"site", s.site >= 0 ? p.sites[s.site] : ""}, {"extent", sym::text(s.code.extent)}, {"grain", s.code.grain}});
      for (const host::LaunchCode& v : s.variants) out.back()["variants"].push_back(p.kernels[v.kernel]);
    }
    if (s.kind == host::Step::call) out.push_back({{"operator", s.symbol}, {"site", s.site >= 0 ? p.sites[s.site] : ""}});
    for (const host::Steps& b : s.body) collect_launches(b, p, out);
  }
}

std::string make_manifest(const Options& o, const graph::Module& m, const host::Program& p,
                          const std::unordered_map<std::string, std::string>& sources) {
  Json j;
  j["tool"] = std::string("tripod ") + kToolVersion;
  j["model"] = m.name;
  j["target"] = o.target;
  j["cpu"] = o.cpu;
  j["inputs"] = io_list(p.inputs);
  j["outputs"] = io_list(p.outputs);
  for (const host::Symbol& s : p.symbols)
    j["dims"].push_back({{"name", s.name}, {"min", s.var->range.lo}, {"max", s.var->range.hi}, {"from", s.bound_by_input ? "input" : "data"}});
  Json steps = Json::array();
  collect_launches(p.steps, p, steps);
  j["steps"] = steps;
  if (o.keep_sources)
    for (const std::string& k : p.kernels)
      if (auto it = sources.find(k); it != sources.end()) j["kernels"].push_back({{"name", k}, {"loops", it->second}});
  return j.dump(1);
}

}  // namespace tripod
