#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/world/world.hpp"

namespace tessera::checkpoint {

// A rank's progress in shared work, as a text that ranks exchange: empty while it works, then its
// result or its failure.

/// Returns the text of a rank that has done its part, with `result`.
[[nodiscard]] std::string text_of_result(std::string_view result);
/// Returns the text of a failure: its kind and its message. Empty for null.
[[nodiscard]] std::string text_of_failure(const std::exception_ptr& failure);

/// Whether all ranks have ended, with a result or a failure.
[[nodiscard]] bool all_have_ended(const std::vector<std::string>& all);
/// Returns the first text of a failure; empty if there is none.
[[nodiscard]] std::string first_failure(const std::vector<std::string>& all);
/// Returns the result in a `text` of text_of_result.
[[nodiscard]] std::string result_in(const std::string& text);
/// Throws the error in a `text` of text_of_failure, as its own kind.
[[noreturn]] void throw_failure(const std::string& text);

/// *Collective.* If any rank has failed, throws the first failing rank's error on every rank.
void agree_on_failure(World& world, const std::exception_ptr& mine);

/// Calls `action` and returns the exception that it throws, or null. CommError and DeviceError pass
/// through: after them ranks cannot exchange anything.
template <class Action>
[[nodiscard]] std::exception_ptr failure_of(Action&& action) {
  try {
    action();
  } catch (const CommError&) { throw; } catch (const DeviceError&) {
    throw;
  } catch (...) { return std::current_exception(); }
  return nullptr;
}

}  // namespace tessera::checkpoint
