#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

// How far a rank is with work that all share, as a text that ranks exchange: nothing while it
// works, then what it has come to, or its failure.

/// Returns the text of a rank that has done its part, and come to `result`.
[[nodiscard]] std::string text_of_result(std::string_view result);
/// Returns the text of a failure: its kind and its message. Empty for null.
[[nodiscard]] std::string text_of_failure(const std::exception_ptr& failure);

/// Whether all ranks have ended: with a result or a failure.
[[nodiscard]] bool all_have_ended(const std::vector<std::string>& all);
/// Returns the first text of a failure; empty if there is none.
[[nodiscard]] std::string first_failure(const std::vector<std::string>& all);
/// Returns the result that `text` of text_of_result stands for.
[[nodiscard]] std::string result_in(const std::string& text);
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
