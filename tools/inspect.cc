// tripod inspect: what is in a model.so.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/diagnostic.h"
#include "commands.h"
#include "driver/kernel_source.h"
#include "driver/loaded_model.h"

namespace tripod::tools {
namespace {

struct InspectOptions {
  std::string model, kernel, form = "loop";
  std::vector<std::string> dims;
  bool source = false, json = false;
};

void print_values(const nlohmann::json& list, const char* what) {
  for (const auto& v : list) {
    std::string dims;
    for (const auto& d : v["shape"]) dims += (dims.empty() ? "" : ", ") + (d.is_string() ? d.get<std::string>() : d.dump());
    std::printf("%s %s: %s[%s]\n", what, v["name"].get<std::string>().c_str(), v["dtype"].get<std::string>().c_str(), dims.c_str());
  }
}

// What a kernel is for, and with --source its text; the comments of that stand for every form.
void print_kernel(const InspectOptions& o, const nlohmann::json& m) {
  const auto all = m.value("kernels", nlohmann::json::array());
  const auto k = std::find_if(all.begin(), all.end(), [&](const auto& j) { return j["name"] == o.kernel; });
  if (k == all.end()) throw CompileError({}, "no kernel \"" + o.kernel + "\"", "tripod inspect without --kernel lists them");
  nlohmann::ordered_json j = {{"kernel", o.kernel}};
  for (const auto& s : m["steps"]) {
    if (s.value("kernel", "") != o.kernel || !s.contains("work")) continue;
    const auto& w = m["works"][s["work"].get<size_t>()];
    for (const char* key : {"rule", "nodes", "flops", "bytes"})
      if (w.contains(key)) j[key] = w[key];
    j["extent"] = s["extent"], j["grain"] = s["grain"];
  }
  if (m["target"] == "cuda" && o.form != "loop")
    throw CompileError({}, "--as " + o.form + ": a kernel for a GPU has its CUDA C only", "leave --as out");
  const std::string text = o.source ? kernel_source((*k)["loops"], o.kernel, m["cpu"], o.form) : "";
  if (o.json) {
    if (!text.empty()) j["source"] = text;
    std::printf("%s\n", j.dump(1).c_str());
    return;
  }
  if (!text.empty()) {
    std::printf("%s", text.c_str());   // as it is: debug information counts its lines
    return;
  }
  for (const auto& [key, value] : j.items())
    if (key != "nodes") std::printf("%s: %s\n", key.c_str(), value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  for (const auto& n : j.value("nodes", nlohmann::ordered_json::array())) std::printf("  %s\n", n.get<std::string>().c_str());
}

// Temporary memory for one choice of dims, beside the least that the same live ranges need.
void print_memory(const nlohmann::json& m, const std::map<std::string, int64_t>& given) {
  std::vector<int64_t> values;
  std::string at;
  for (const auto& d : m.value("dims", nlohmann::json::array())) {
    const auto name = d["name"].get<std::string>();
    const auto found = given.find(name);
    values.push_back(found != given.end() ? found->second : std::max<int64_t>(1, d["min"].get<int64_t>()));
    at += (at.empty() ? " at " : ", ") + name + "=" + std::to_string(values.back());
  }
  const auto size = arena_size(m, values);
  if (!size) {
    std::printf("arena%s: not known for these dims\n", at.c_str());
    return;
  }
  const double ratio = size->lower_bound > 0 ? static_cast<double>(size->bytes) / static_cast<double>(size->lower_bound) : 1;
  std::printf("arena%s: %ld bytes, at least %ld are alive at once (%.2f times)\n", at.c_str(), size->bytes, size->lower_bound, ratio);
}

void inspect(const InspectOptions& o) {
  LoadedModel model(o.model);
  const nlohmann::json& m = model.manifest();
  if (!o.kernel.empty()) return print_kernel(o, m);
  if (o.json) {
    std::printf("%s\n", m.dump(1).c_str());
    return;
  }
  std::printf("%s, target %s %s\n", m["tool"].get<std::string>().c_str(), m["target"].get<std::string>().c_str(), m["cpu"].get<std::string>().c_str());
  print_values(m["inputs"], "input");
  print_values(m["outputs"], "output");
  for (const auto& d : m.value("dims", nlohmann::json::array()))
    std::printf("dim %s: %ld..%ld, from %s\n", d["name"].get<std::string>().c_str(), d["min"].get<long>(), d["max"].get<long>(), d["from"].get<std::string>().c_str());
  print_memory(m, parse_dims(o.dims));
  for (const auto& s : m["steps"])
    std::printf("%s  # %s\n", s.contains("kernel") ? s["kernel"].get<std::string>().c_str() : s["operator"].get<std::string>().c_str(), s["site"].get<std::string>().c_str());
}

}  // namespace

void add_inspect(CLI::App& app, int& code) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* c = app.add_subcommand("inspect", "what a compiled model holds: inputs, outputs, dims, kernels");
  c->add_option("model", o->model, "the model.so")->required();
  CLI::Option* kernel = c->add_option("--kernel", o->kernel, "one kernel");
  CLI::Option* source = c->add_flag("--source", o->source, "its text: loop IR (CUDA C for a GPU), or what --as says")->needs(kernel);
  c->add_option("--as", o->form, "loop (the default), llvm, optimised, asm")->needs(source)->check(CLI::IsMember({"loop", "llvm", "optimised", "asm"}));
  c->add_option("--dim", o->dims, "NAME=VALUE, for the size of the arena (default: the least that each allows)");
  c->add_flag("--json", o->json, "the manifest as it is");
  c->callback([o, &code] { code = guarded(o->model, [&] { inspect(*o); }); });
}

}  // namespace tripod::tools
