#include "comm/rank_errors.hpp"

#include <fmt/format.h>

#include <new>

#include "comm/aborted.hpp"

namespace tessera {
namespace {

bool is_echo(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Aborted&) { return true; } catch (...) {
    return false;
  }
}

/// Throws `error` again as T if it is one.
template <class T>
void rethrow_as(const std::exception_ptr& error, const std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const T&) { throw T{text}; } catch (...) {  // another type's turn
  }
}

}  // namespace

void RankErrors::add(int rank, const std::exception_ptr& error) noexcept {
  const bool echo = is_echo(error);
  const std::scoped_lock lock{mutex_};
  const bool better = !error_ || (echo_ && !echo) || (echo_ == echo && rank < rank_);
  if (!better) { return; }
  error_ = error;
  rank_ = rank;
  echo_ = echo;
}

void RankErrors::rethrow_cause() const {
  const std::scoped_lock lock{mutex_};
  if (!error_) { return; }
  const std::string text = fmt::format("rank {}: {}", rank_, text_of(error_));
  rethrow_as<ContractError>(error_, text);
  rethrow_as<ConfigError>(error_, text);
  rethrow_as<OutOfMemory>(error_, text);
  rethrow_as<DeviceError>(error_, text);
  rethrow_as<CommError>(error_, text);
  rethrow_as<FormatError>(error_, text);
  try {
    std::rethrow_exception(error_);
  } catch (const std::bad_alloc&) { throw OutOfMemory{text}; } catch (...) {
    throw Error{text};
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) { return "out of memory"; } catch (const std::exception& e) {
    return e.what();
  } catch (...) { return "an exception that is not a std::exception"; }
}

}  // namespace tessera
