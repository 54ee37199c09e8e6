#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace emulated_cuda {

/// The saved position of one of several stacks on a system thread while another runs.
struct Context {
  void* stack_pointer = nullptr;
  const void* stack_bottom = nullptr;  // for the address sanitizer
  std::size_t stack_bytes = 0;
};

/// A stack with a guard page, on which `body(argument)` runs; it never returns.
class Fiber {
 public:
  using Body = void (*)(void* argument);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void start(Body body, void* argument);
  [[nodiscard]] Context& context() noexcept { return context_; }

 private:
  std::byte* memory_;
  Context context_;
};

/// Switches to `to`; returns when something switches back to `from`. The C library's swapcontext
/// would make a system call each time, for signal masks that do not change.
void switch_context(Context& from, Context& to);
/// Must be the first call in a fiber's body.
void enter_context(Context& left);

/// A block's fibers, created on demand and reused by one grid after another.
class FiberSet {
 public:
  [[nodiscard]] Fiber& at(std::size_t index);

 private:
  std::deque<Fiber> fibers_;
};

[[nodiscard]] std::unique_ptr<FiberSet> borrow_fibers();
void give_back(std::unique_ptr<FiberSet> fibers);

}  // namespace emulated_cuda
