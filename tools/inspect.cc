// tripod inspect: what is in a model.so.
#include <cstdio>
#include <memory>

#include "base/diagnostic.h"
#include "commands.h"
#include "model.h"

namespace tripod::tools {
namespace {

struct InspectOptions {
  std::string model, kernel;
  bool source = false, json = false;
};

void print_values(const nlohmann::json& list, const char* what) {
  for (const auto& v : list) {
    std::string dims;
    for (const auto& d : v["shape"]) dims += (dims.empty() ? "" : ", ") + (d.is_string() ? d.get<std::string>() : d.dump());
    std::printf("%s %s: %s[%s]\n", what, v["name"].get<std::string>().c_str(), v["dtype"].get<std::string>().c_str(), dims.c_str());
  }
}

void inspect(const InspectOptions& o) {
  LoadedModel model(o.model);
  const nlohmann::json& m = model.manifest();
  if (!o.kernel.empty()) {
    for (const auto& k : m.value("kernels", nlohmann::json::array()))
      if (k["name"] == o.kernel) {
        std::printf("%s\n", k["loops"].get<std::string>().c_str());
        return;
      }
    throw CompileError({}, "no kernel \"" + o.kernel + "\"", "tripod inspect without --kernel lists them");
  }
  if (o.json) {
    std::printf("%s\n", m.dump(1).c_str());
    return;
  }
  std::printf("%s, target %s %s\n", m["tool"].get<std::string>().c_str(), m["target"].get<std::string>().c_str(), m["cpu"].get<std::string>().c_str());
  print_values(m["inputs"], "input");
  print_values(m["outputs"], "output");
  for (const auto& d : m.value("dims", nlohmann::json::array()))
    std::printf("dim %s: %ld..%ld, from %s\n", d["name"].get<std::string>().c_str(), d["min"].get<long>(), d["max"].get<long>(), d["from"].get<std::string>().c_str());
  for (const auto& s : m["steps"])
    std::printf("%s  # %s\n", s.contains("kernel") ? s["kernel"].get<std::string>().c_str() : s["operator"].get<std::string>().c_str(), s["site"].get<std::string>().c_str());
}

}  // namespace

void add_inspect(CLI::App& app, int& code) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* c = app.add_subcommand("inspect", "what a compiled model holds: inputs, outputs, dims, kernels");
  c->add_option("model", o->model, "the model.so")->required();
  CLI::Option* kernel = c->add_option("--kernel", o->kernel, "one kernel");
  c->add_flag("--source", o->source, "its loop IR")->needs(kernel);
  c->add_flag("--json", o->json, "the manifest as it is");
  c->callback([o, &code] { code = guarded(o->model, [&] { inspect(*o); }); });
}

}  // namespace tripod::tools
