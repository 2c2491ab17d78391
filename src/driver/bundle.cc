#include "driver/bundle.h"

#include <fmt/format.h>

#include <fstream>

#include "base/sha256.h"
#include "driver/manifest.h"
#include "onnx/tensor_file.h"

namespace tripod {
namespace fs = std::filesystem;

namespace {

// Files above this stay where they are: the bundle links to them, and leaves constants out.
constexpr int64_t kMostBytes = int64_t{256} << 20;

void write(const fs::path& path, const void* data, size_t size) {
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  if (!out.flush()) throw CompileError({}, "cannot write " + path.string());
}
void write(const fs::path& path, const std::string& text) { write(path, text.data(), text.size()); }

void copy_or_link(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (fs::file_size(from, error) > static_cast<uintmax_t>(kMostBytes))
    fs::create_symlink(fs::absolute(from), to, error);
  else
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error && fs::is_regular_file(from)) throw CompileError({}, "cannot write " + to.string() + ": " + error.message());
}

std::string quoted(const std::string& s) {
  std::string r = "'";
  for (char c : s) r += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return r + "'";
}

bool is_text_ir(const std::string& extension) { return extension == ".graph" || extension == ".loop"; }

// An option with its value, written `--name value` or `--name=value`; moves i over both.
bool takes(const std::vector<std::string>& all, size_t& i, const std::string& name, std::string& value) {
  if (all[i] == name && i + 1 < all.size()) return value = all[++i], true;
  if (all[i].rfind(name + "=", 0) == 0 && name.size() > 2) return value = all[i].substr(name.size() + 1), true;
  return false;
}

}  // namespace

void PhaseDumper::dump_graph(const std::string& phase, const graph::Module& m) {
  write(fs::path(folder_) / fmt::format("{}-{}.graph", ++graphs_, phase), graph::text(m));
  dump_constants(m);
}

void PhaseDumper::dump_text(const std::string& phase, const std::string& text) {
  if (phase == "lower" || phase == "schedule") {
    fs::create_directories(fs::path(folder_) / phase);
    write(fs::path(folder_) / phase / fmt::format("{:03}.loop", kernels_[phase]++), text);
  } else if (phase == "plan" || phase == "emit") {
    write(fs::path(folder_) / (phase + (phase == "emit" ? ".ll" : ".txt")), text);
  }
}

void PhaseDumper::dump_constants(const graph::Module& m) {
  const fs::path folder = fs::path(folder_) / "constants";
  fs::create_directories(folder);
  for (int32_t i = 0; i < m.num_graphs(); ++i)
    for (const graph::NodeId n : m.graph(i).order()) {
      if (m.graph(i).node(n).op != graph::OpKind::constant) continue;
      const auto& a = m.graph(i).attr<graph::ConstAttr>(n);
      if (!a.data || bytes_ + a.size > kMostBytes) continue;
      const std::string hash = sha256(a.data, static_cast<size_t>(a.size));
      if (!written_.insert(hash).second) continue;
      write(folder / hash, a.data, static_cast<size_t>(a.size));
      bytes_ += a.size;
    }
}

void start_bundle(const std::string& folder, const std::vector<std::string>& arguments, const std::string& model) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) throw CompileError({}, "--repro: cannot make the folder " + folder);
  const std::string extension = fs::path(model).extension().string();
  const std::string copy = "model" + (is_text_ir(extension) ? extension : ".onnx");
  copy_or_link(model, fs::path(folder) / copy);
  if (is_text_ir(extension)) {
    const fs::path constants = fs::path(model).parent_path() / "constants";
    if (fs::is_directory(constants))
      fs::copy(constants, fs::path(folder) / "constants",
               fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
  } else {
    for (const std::string& f : importer::external_files(model))
      copy_or_link(fs::path(model).parent_path() / f, fs::path(folder) / f);
  }
  std::string command, original;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string value;
    original += " " + quoted(arguments[i]);
    if (takes(arguments, i, "--repro", value)) continue;
    if (takes(arguments, i, "-o", value) || takes(arguments, i, "--output", value)) {
      command += " -o model.so";
    } else if (takes(arguments, i, "--input-dir", value)) {
      fs::copy(value, fs::path(folder) / "inputs", fs::copy_options::recursive | fs::copy_options::overwrite_existing,
               error);
      command += " --input-dir inputs";
    } else {
      command += " " + quoted(arguments[i] == model ? copy : arguments[i]);
    }
  }
  write(fs::path(folder) / "about.txt", fmt::format("tripod {}\ncommand: tripod{}\n", kToolVersion, original));
  write(fs::path(folder) / "replay.sh",
        fmt::format("#!/bin/sh\n# Runs the command of about.txt on the files of this folder.\ncd \"$(dirname \"$0\")\" "
                    "&& exec \"${{TRIPOD:-tripod}}\"{}\n",
                    command));
}

std::function<graph::ConstAttr(std::string_view)> constants_beside(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path() / "constants";
  return [folder](std::string_view hash) {
    graph::ConstAttr a;
    std::ifstream in(folder / std::string(hash), std::ios::binary);
    if (!in) return a;
    auto bytes = std::make_shared<std::string>(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    a.data = reinterpret_cast<const std::byte*>(bytes->data());
    a.size = static_cast<int64_t>(bytes->size());
    a.owner = bytes;
    return a;
  };
}

}  // namespace tripod
