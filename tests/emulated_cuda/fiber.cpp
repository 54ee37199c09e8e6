#include "emulated_cuda/fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <utility>

#include "emulated_cuda/misuse.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__) || !defined(__linux__)
#error "the emulation of CUDA switches stacks by hand: x86-64 and Linux only"
#endif

// Saves what the ABI lets a callee keep: rbx, rbp, r12 to r15 and the stack pointer. The control
// words of the floating-point units are the same in all kernels.
asm(R"(
.text
.hidden emulated_cuda_switch
.globl emulated_cuda_switch
.type emulated_cuda_switch, @function
emulated_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_cuda_switch, .-emulated_cuda_switch

.hidden emulated_cuda_begin
.globl emulated_cuda_begin
.type emulated_cuda_begin, @function
emulated_cuda_begin:
  movq %r13, %rdi
  callq *%r12
  ud2
.size emulated_cuda_begin, .-emulated_cuda_begin
)");

extern "C" void emulated_cuda_switch(void** from, void* to);
extern "C" void emulated_cuda_begin();

namespace emulated_cuda {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kStackBytes = std::size_t{256} << 10U;  // only touched pages take memory

}  // namespace

Fiber::Fiber()
    : memory_{
          static_cast<std::byte*>(mmap(nullptr, kStackBytes + kPageBytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))} {
  if (static_cast<void*>(memory_) == MAP_FAILED || mprotect(memory_, kPageBytes, PROT_NONE) != 0) {
    misuse("there is no memory for the stacks of a block's threads");
  }
  context_.stack_bottom = memory_ + kPageBytes;
  context_.stack_bytes = kStackBytes;
}

Fiber::~Fiber() {
  munmap(memory_, kStackBytes + kPageBytes);
}

void Fiber::start(Body body, void* argument) {
#if defined(__SANITIZE_ADDRESS__)
  // Frames of the previous use never returned, so their redzones are still poisoned.
  __asan_unpoison_memory_region(memory_ + kPageBytes, kStackBytes);
#endif
  auto* top = reinterpret_cast<std::uintptr_t*>(memory_ + kPageBytes + kStackBytes);
  *--top = 0;
  *--top = 0;  // aligns the stack at the entry to emulated_cuda_begin
  *--top = reinterpret_cast<std::uintptr_t>(&emulated_cuda_begin);
  *--top = 0;                                           // rbp
  *--top = 0;                                           // rbx
  *--top = reinterpret_cast<std::uintptr_t>(body);      // r12
  *--top = reinterpret_cast<std::uintptr_t>(argument);  // r13
  *--top = 0;                                           // r14
  *--top = 0;                                           // r15
  context_.stack_pointer = top;
}

#if defined(__SANITIZE_ADDRESS__)
void switch_context(Context& from, Context& to) {
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to.stack_bottom, to.stack_bytes);
  emulated_cuda_switch(&from.stack_pointer, to.stack_pointer);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void enter_context(Context& left) {
  __sanitizer_finish_switch_fiber(nullptr, &left.stack_bottom, &left.stack_bytes);
}
#else
void switch_context(Context& from, Context& to) {
  emulated_cuda_switch(&from.stack_pointer, to.stack_pointer);
}

void enter_context(Context& /*left*/) {}
#endif

Fiber& FiberSet::at(std::size_t index) {
  while (fibers_.size() <= index) { fibers_.emplace_back(); }
  return fibers_[index];
}

namespace {

struct FreeSets {
  std::mutex mutex;
  std::vector<std::unique_ptr<FiberSet>> sets;
};

FreeSets& free_sets() {
  static auto* const sets = new FreeSets;  // streams may outlive statics at process exit
  return *sets;
}

}  // namespace

std::unique_ptr<FiberSet> borrow_fibers() {
  FreeSets& free = free_sets();
  const std::scoped_lock lock{free.mutex};
  if (free.sets.empty()) { return std::make_unique<FiberSet>(); }
  std::unique_ptr<FiberSet> set = std::move(free.sets.back());
  free.sets.pop_back();
  return set;
}

void give_back(std::unique_ptr<FiberSet> fibers) {
  FreeSets& free = free_sets();
  const std::scoped_lock lock{free.mutex};
  free.sets.push_back(std::move(fibers));
}

}  // namespace emulated_cuda
