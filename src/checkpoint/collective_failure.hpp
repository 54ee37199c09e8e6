#pragma once

#include <exception>
#include <string>

#include "tessera/base/error.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// A failure as a text that ranks exchange: its kind and its message. Empty for null.
[[nodiscard]] std::string text_of_failure(const std::exception_ptr& failure);

/// Throws what `text` of text_of_failure stands for: an error of its kind.
[[noreturn]] void throw_failure(const std::string& text);

/// *Collective.* If some rank has failed, throws on every rank what the first of them has failed
/// with.
void agree_on_failure(World& world, const std::exception_ptr& mine);

/// Calls `action` and returns what it throws, or null. CommError and DeviceError go through: after
/// them no rank can be told anything.
template <class Action>
[[nodiscard]] std::exception_ptr failure_of(Action&& action) {
  try {
    action();
  } catch (const CommError&) { throw; } catch (const DeviceError&) {
    throw;
  } catch (...) { return std::current_exception(); }
  return nullptr;
}

}  // namespace tessera
