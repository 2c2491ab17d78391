// Stands in for libFuzzer where the compiler has none (g++): runs the files of the folders given, then random mutations
// of them. usage: TARGET [-max_total_time=SECONDS] [-seed=N] [-artifact_prefix=DIR/] FOLDER|FILE...
// An input that ends the process lies in DIR/last-input.
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

Input read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(in), {});
}

Input mutated(Input x, const std::vector<Input>& all, std::mt19937& random) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (size_t k = 1 + below(4); k-- > 0;) {
    const size_t at = below(x.size() + 1), n = std::min(x.size() - at, below(16) + 1);
    switch (below(6)) {
      case 0: x.insert(x.begin() + static_cast<long>(at), static_cast<uint8_t>(random())); break;
      case 1: x.erase(x.begin() + static_cast<long>(at), x.begin() + static_cast<long>(at + n)); break;
      case 2: for (size_t i = at; i < at + n; ++i) x[i] = static_cast<uint8_t>(random()); break;
      case 3: if (n > 0) x[at] ^= static_cast<uint8_t>(1u << below(8)); break;
      case 4: if (n > 0) x[at] = below(2) ? 0xff : 0x7f; break;
      case 5: {  // a piece of another input
        const Input& other = all[below(all.size())];
        const size_t from = below(other.size() + 1), m = std::min(other.size() - from, below(64) + 1);
        x.insert(x.begin() + static_cast<long>(at), other.begin() + static_cast<long>(from), other.begin() + static_cast<long>(from + m));
      }
    }
  }
  return x;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 10;
  uint32_t seed = 1;
  std::string prefix = "./";
  std::vector<Input> corpus = {{}};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a.starts_with("-max_total_time=")) seconds = std::stod(a.substr(16));
    else if (a.starts_with("-seed=")) seed = static_cast<uint32_t>(std::stoul(a.substr(6)));
    else if (a.starts_with("-artifact_prefix=")) prefix = a.substr(17);
    else if (a[0] == '-') continue;
    else if (std::filesystem::is_directory(a)) {
      for (const auto& e : std::filesystem::directory_iterator(a)) corpus.push_back(read(e.path()));
    } else {
      corpus.push_back(read(a));
    }
  }
  const auto run = [&](const Input& x) {
    std::ofstream(prefix + "last-input", std::ios::binary).write(reinterpret_cast<const char*>(x.data()), static_cast<long>(x.size()));
    LLVMFuzzerTestOneInput(x.data(), x.size());
  };
  for (const Input& x : corpus) run(x);
  std::mt19937 random(seed);
  size_t runs = corpus.size();
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
    run(mutated(corpus[random() % corpus.size()], corpus, random));
    ++runs;
  }
  std::printf("%zu runs\n", runs);
}
