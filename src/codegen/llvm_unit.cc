#include "codegen/llvm_unit.h"

#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include "base/diagnostic.h"
#include "codegen/llvm_kernel.h"

namespace tripod::codegen {

struct LlvmUnit::Impl {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::DIBuilder> debug;
};

// LLVM 19's pass against blocked store forwarding asks for the size of every access and dies of one that it does not
// know: a masked load whose mask turned out to be constant. It has no switch but this one.
static void switch_off_faulty_pass() {
  const auto& options = llvm::cl::getRegisteredOptions();
  const auto found = options.find("x86-disable-avoid-SFB");
  TRIPOD_CHECK(found != options.end(), "this LLVM has no option x86-disable-avoid-SFB");
  static_cast<llvm::cl::opt<bool>*>(found->second)->setValue(true);
}

LlvmUnit::LlvmUnit(std::string_view name, const CpuTarget& target) : impl_(std::make_unique<Impl>()) {
  // Idempotent and cheap; LLVM keeps its target registry in globals of its own.
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  switch_off_faulty_pass();
  const char* triple = "x86_64-unknown-linux-gnu";
  std::string error;
  const llvm::Target* t = llvm::TargetRegistry::lookupTarget(triple, error);
  TRIPOD_CHECK(t, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.MCOptions.AsmVerbose = true;
  impl_->machine.reset(t->createTargetMachine(triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                                              llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  impl_->module = std::make_unique<llvm::Module>(llvm::StringRef(name.data(), name.size()), impl_->context);
  impl_->module->setTargetTriple(triple);
  impl_->module->setDataLayout(impl_->machine->createDataLayout());
  impl_->module->setPICLevel(llvm::PICLevel::BigPIC);
  // Functions and line tables: sections that nobody maps until a debugger or profiler asks.
  impl_->module->addModuleFlag(llvm::Module::Warning, "Debug Info Version", llvm::DEBUG_METADATA_VERSION);
  impl_->module->addModuleFlag(llvm::Module::Warning, "Dwarf Version", 4);
  impl_->debug = std::make_unique<llvm::DIBuilder>(*impl_->module);
  impl_->debug->createCompileUnit(llvm::dwarf::DW_LANG_C, impl_->debug->createFile("model", "tripod"), "tripod", true, "", 0, "",
                                  llvm::DICompileUnit::FullDebug);
}

LlvmUnit::~LlvmUnit() = default;
llvm::Module& LlvmUnit::module() { return *impl_->module; }
llvm::LLVMContext& LlvmUnit::context() { return impl_->context; }

KernelInfo LlvmUnit::add_kernel(const loop::Function& f, const std::string& symbol, sym::Context& context) {
  return emit_kernel(*impl_->module, f, symbol, context, *impl_->debug);
}

std::string LlvmUnit::ir_text() const {
  std::string s;
  llvm::raw_string_ostream os(s);
  impl_->module->print(os, nullptr);
  return s;
}

void LlvmUnit::finish_debug_info() {
  if (impl_->debug) impl_->debug->finalize();
  impl_->debug.reset();   // no kernels from here on
}

void LlvmUnit::optimise() {
  finish_debug_info();
  std::string problems;
  llvm::raw_string_ostream os(problems);
  TRIPOD_CHECK(!llvm::verifyModule(*impl_->module, &os), problems);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(impl_->machine.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  // Schedules have unrolled and vectorised already: what is left is promotion of register tiles (sroa), hoisting of
  // address arithmetic (licm), and clean-up.
  const char* pipeline =
      "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
      "loop-mssa(licm<allowspeculation>),gvn,loop-mssa(licm<allowspeculation>),"
      "loop(indvars,loop-deletion),instcombine<no-verify-fixpoint>,early-cse,simplifycfg,adce)";
  llvm::ModulePassManager passes;
  if (auto e = builder.parsePassPipeline(passes, pipeline)) TRIPOD_CHECK(false, llvm::toString(std::move(e)));
  passes.run(*impl_->module, modules);
}

static std::string emit(llvm::TargetMachine& machine, llvm::Module& module, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream os(bytes);
  llvm::legacy::PassManager passes;
  const bool unable = machine.addPassesToEmitFile(passes, os, nullptr, type);
  TRIPOD_CHECK(!unable, "the target cannot emit this kind of file");
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

std::vector<char> LlvmUnit::object() {
  finish_debug_info();
  const std::string s = emit(*impl_->machine, *impl_->module, llvm::CodeGenFileType::ObjectFile);
  return {s.begin(), s.end()};
}

std::string LlvmUnit::assembly() {
  finish_debug_info();
  return emit(*impl_->machine, *impl_->module, llvm::CodeGenFileType::AssemblyFile);
}

}  // namespace tripod::codegen
