#include "comm/rank_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "comm/aborted.hpp"

namespace tessera {
namespace {

/// Throws `error` again as T if it is one.
template <class T>
void rethrow_as(const std::exception_ptr& error, const std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const T&) { throw T{text}; } catch (...) {  // another type's turn
  }
}

}  // namespace

bool is_echo(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Aborted&) { return true; } catch (...) {
    return false;
  }
}

void rethrow_with_rank(const std::exception_ptr& error, int rank) {
  const std::string text = fmt::format("rank {}: {}", rank, text_of(error));
  rethrow_as<ContractError>(error, text);
  rethrow_as<ConfigError>(error, text);
  rethrow_as<OutOfMemory>(error, text);
  rethrow_as<DeviceError>(error, text);
  rethrow_as<CommError>(error, text);
  rethrow_as<FormatError>(error, text);
  rethrow_as<NumericError>(error, text);
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) { throw OutOfMemory{text}; } catch (...) {
    throw Error{text};
  }
}

void RankErrors::add(int rank, std::exception_ptr error) noexcept {
  errors_[static_cast<std::size_t>(rank)] = std::move(error);
}

void RankErrors::rethrow_cause() const {
  auto found = std::find_if(errors_.begin(), errors_.end(),
                            [](const auto& error) { return error && !is_echo(error); });
  if (found == errors_.end()) {
    found = std::find_if(errors_.begin(), errors_.end(),
                         [](const auto& error) { return error != nullptr; });
  }
  if (found == errors_.end()) { return; }
  rethrow_with_rank(*found, static_cast<int>(found - errors_.begin()));
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) { return "out of memory"; } catch (const std::exception& e) {
    return e.what();
  } catch (...) { return "an exception that is not a std::exception"; }
}

}  // namespace tessera
