// The program around a batch of generated kernels: runs those of its .bin file (written by kernel_cases) and compares
// with the interpreter, bit for bit; NaNs are equal whatever their payload. Prints a line a failure, then
// "N passed, N failed".
#pragma once

#include <string>
#include <utility>

struct Kernel {
  const char* symbol;
  void (*run)(const uint64_t* args);
};
extern const Kernel kKernels[];

template <class... P, size_t... I>
void call_with(void (*f)(P...), const uint64_t* a, std::index_sequence<I...>) { f((P)a[I]...); }
template <class... P>
void call(void (*f)(P...), const uint64_t* a) { call_with(f, a, std::index_sequence_for<P...>()); }

struct Reader {
  FILE* file;
  int64_t number() {
    int64_t v = 0;
    if (std::fread(&v, sizeof v, 1, file) != 1) cuda_on_cpu::fail("the file of cases ends early");
    return v;
  }
  bool more() {
    const int c = std::fgetc(file);
    if (c != EOF) std::ungetc(c, file);
    return c != EOF;
  }
  std::unique_ptr<unsigned char[]> bytes(size_t& n) {
    n = static_cast<size_t>(number());
    std::unique_ptr<unsigned char[]> p(new unsigned char[n]);
    if (std::fread(p.get(), 1, n, file) != n) cuda_on_cpu::fail("the file of cases ends early");
    return p;
  }
};

// dtype: f32 0, f64 1, f16 2, bf16 3.
inline bool is_nan(int64_t dtype, const unsigned char* p) {
  uint64_t v = 0;
  const size_t size = dtype == 0 ? 4 : dtype == 1 ? 8 : 2;
  std::memcpy(&v, p, size);
  const uint64_t infinity[] = {0x7f800000u, 0x7ff0000000000000u, 0x7c00u, 0x7f80u};
  return (v & ~(uint64_t{1} << (size * 8 - 1))) > infinity[dtype];
}

inline int64_t first_difference(int64_t dtype, const unsigned char* a, const unsigned char* b, size_t n) {
  const size_t size = dtype == 0 ? 4 : dtype == 1 ? 8 : dtype <= 3 ? 2 : 1;
  for (size_t i = 0; i + size <= n; i += size)
    if (std::memcmp(a + i, b + i, size) != 0 && !(dtype <= 3 && is_nan(dtype, a + i) && is_nan(dtype, b + i)))
      return static_cast<int64_t>(i);
  return -1;
}

int main(int argc, char** argv) {
  Reader r{argc == 2 ? std::fopen(argv[1], "rb") : nullptr};
  if (!r.file) cuda_on_cpu::fail("usage: batch FILE.bin");
  int passed = 0, failed = 0;
  while (r.more()) {
    const Kernel& k = kKernels[r.number()];
    int64_t geometry[7];
    for (int64_t& g : geometry) g = r.number();
    const bool fails = r.number() != 0;
    const size_t buffers = static_cast<size_t>(r.number());
    std::vector<std::unique_ptr<unsigned char[]>> got, want;
    std::vector<size_t> sizes(buffers);
    std::vector<int64_t> types(buffers);
    tp_error error{};
    std::vector<uint64_t> args{reinterpret_cast<uint64_t>(&error)};
    for (size_t i = 0; i < buffers; ++i) {
      types[i] = r.number();
      got.push_back(r.bytes(sizes[i]));
      want.push_back(r.bytes(sizes[i]));
      args.push_back(reinterpret_cast<uint64_t>(got.back().get()));
    }
    const size_t dims = static_cast<size_t>(r.number());
    std::string text;
    for (size_t i = 0; i < dims; ++i) {
      args.push_back(static_cast<uint64_t>(r.number()));
      text += " " + std::to_string(static_cast<int64_t>(args.back()));
    }
    std::fprintf(stderr, "# %s%s\n", k.symbol, text.c_str());  // which one, when a sanitizer ends the program
    cuda_on_cpu::launch(geometry, [&] { k.run(args.data()); });
    std::string wrong;
    for (size_t i = 0; i < buffers && wrong.empty(); ++i)
      if (const int64_t at = first_difference(types[i], got[i].get(), want[i].get(), sizes[i]); at >= 0) {
        uint64_t g = 0, w = 0;
        const size_t n = std::min<size_t>(8, sizes[i] - static_cast<size_t>(at));
        std::memcpy(&g, got[i].get() + at, n), std::memcpy(&w, want[i].get() + at, n);
        char buffer[160];
        std::snprintf(buffer, sizeof buffer, "parameter %zu differs at byte %lld: %016llx, wanted %016llx", i,
                      static_cast<long long>(at), static_cast<unsigned long long>(g), static_cast<unsigned long long>(w));
        wrong = buffer;
      }
    if (wrong.empty() && (error.state != 0) != fails) wrong = fails ? "no error was reported" : "an error was reported";
    if (wrong.empty()) ++passed;
    else ++failed, std::printf("FAILED %s%s: %s\n", k.symbol, text.c_str(), wrong.c_str());
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
