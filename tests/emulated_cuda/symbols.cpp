#include "emulated_cuda/symbols.hpp"

#include <cuda_runtime.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "emulated_cuda/misuse.hpp"

namespace emulated_cuda {
namespace {

constexpr std::size_t kMostSharedBytes = std::size_t{48} << 10U;
// Functions that kernels call share a few numbers per warp; only kernels have larger arrays.
constexpr std::size_t kMostOfHelper = std::size_t{4} << 10U;

constexpr int kNoFile = -1;  // of functions in several files, merged by the linker

struct Function {
  std::string name;
  int file = kNoFile;
};

struct Variable {
  std::string name;  // mangled: _ZZ <function> E <variable>
  int file;
  std::size_t offset;
  std::size_t bytes;
};

/// Symbols of the file that contains this code.
struct SymbolTable {
  std::map<std::uintptr_t, Function> functions;  // by address relative to the load address
  std::vector<Variable> shared;
  std::uintptr_t loaded_at = 0;
  std::size_t anchor_offset = 0;  // offset of threadIdx in thread-local storage
};

bool ends_with_cu(const std::string& file) {
  return file.size() > 3 && file.compare(file.size() - 3, 3, ".cu") == 0;
}

/// Whether a symbol is a variable of a function in a kernel file, or of one shared by kernel files.
bool is_shared(const std::string& name, bool of_kernels, int file) {
  const auto starts_with = [&](const char* prefix) { return name.rfind(prefix, 0) == 0; };
  if (!starts_with("_ZZ")) { return false; }
  return (of_kernels && file != kNoFile) || starts_with("_ZZN7tessera7kernels4cuda") ||
         starts_with("_ZZN13emulated_cuda4test");
}

void add_symbols(const char* strings, const Elf64_Sym* symbols, std::size_t count,
                 SymbolTable& table) {
  bool of_kernels = false;
  int files = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Elf64_Sym& symbol = symbols[i];
    const std::string name = strings + symbol.st_name;
    const int file = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL ? files : kNoFile;
    switch (ELF64_ST_TYPE(symbol.st_info)) {
      case STT_FILE:
        of_kernels = ends_with_cu(name);
        ++files;
        break;
      case STT_FUNC:
        if (symbol.st_shndx != SHN_UNDEF) { table.functions[symbol.st_value] = {name, file}; }
        break;
      case STT_TLS:
        if (name == "threadIdx") { table.anchor_offset = symbol.st_value; }
        if (is_shared(name, of_kernels, file)) {
          table.shared.push_back({name, file, symbol.st_value, symbol.st_size});
        }
        break;
      default:
        break;
    }
  }
}

SymbolTable read_table() {
  SymbolTable table;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&read_table), &info) == 0) { return table; }
  std::ifstream file{info.dli_fname, std::ios::binary};
  const std::vector<char> bytes{std::istreambuf_iterator<char>{file}, {}};
  if (bytes.size() < sizeof(Elf64_Ehdr)) { return table; }
  table.loaded_at = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr& section = sections[i];
    if (section.sh_type != SHT_SYMTAB) { continue; }
    add_symbols(bytes.data() + sections[section.sh_link].sh_offset,
                reinterpret_cast<const Elf64_Sym*>(bytes.data() + section.sh_offset),
                section.sh_size / sizeof(Elf64_Sym), table);
  }
  return table;
}

const SymbolTable& symbol_table() {
  static const auto* const table = new SymbolTable{read_table()};
  return *table;
}

Function symbol_at(const void* code) {
  const SymbolTable& table = symbol_table();
  const auto found = table.functions.find(reinterpret_cast<std::uintptr_t>(code) - table.loaded_at);
  return found == table.functions.end() ? Function{} : found->second;
}

struct KernelShared {
  std::vector<Variable> arrays;
  std::size_t own_bytes = 0;
  std::size_t all_bytes = 0;
};

KernelShared shared_of(const void* kernel) {
  const Function function = symbol_at(kernel);
  if (function.name.size() < 3) { return {}; }
  const std::string own = "_ZZ" + function.name.substr(2) + "E";
  KernelShared found;
  for (const Variable& variable : symbol_table().shared) {
    const bool is_own = variable.name.rfind(own, 0) == 0;
    const bool is_near = variable.file == function.file || variable.file == kNoFile;
    if (is_own || (is_near && variable.bytes <= kMostOfHelper)) {
      found.arrays.push_back(variable);
      found.all_bytes += variable.bytes;
    }
    if (is_own) { found.own_bytes += variable.bytes; }
  }
  if (found.own_bytes > kMostSharedBytes) {
    misuse("the shared arrays of " + function_name(kernel) + " take " +
           std::to_string(found.own_bytes) + " bytes, of 49152");
  }
  return found;
}

/// Cached per kernel.
const KernelShared& known_shared_of(const void* kernel) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<const void*, KernelShared>;
  const std::scoped_lock lock{*mutex};
  const auto found = known->find(kernel);
  return found != known->end() ? found->second
                               : known->emplace(kernel, shared_of(kernel)).first->second;
}

/// Begin of the calling thread's thread-local memory of this file.
std::byte* thread_local_begin() {
  return reinterpret_cast<std::byte*>(&threadIdx) - symbol_table().anchor_offset;
}

}  // namespace

SharedArrays::SharedArrays(const void* kernel) {
  for (const Variable& variable : known_shared_of(kernel).arrays) {
    arrays_.push_back({thread_local_begin() + variable.offset, variable.bytes});
  }
}

void SharedArrays::poison() const {
  for (const SharedArray& array : arrays_) { std::memset(array.data, 0xFF, array.bytes); }
}

std::size_t declared_shared_bytes(const void* kernel) {
  return known_shared_of(kernel).own_bytes;
}

namespace {

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name{
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free};
  return name ? name.get() : symbol;
}

}  // namespace

std::string shared_array_at(const void* data) {
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(data) - thread_local_begin());
  for (const Variable& variable : symbol_table().shared) {
    if (offset - variable.offset < variable.bytes) {
      return demangled(variable.name) + " + " + std::to_string(offset - variable.offset);
    }
  }
  return {};
}

std::size_t possible_shared_bytes(const void* kernel) {
  return known_shared_of(kernel).all_bytes;
}

std::string function_name(const void* code) {
  return demangled(symbol_at(code).name);
}

}  // namespace emulated_cuda
