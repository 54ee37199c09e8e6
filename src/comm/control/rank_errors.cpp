#include "comm/control/rank_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/process_limits.hpp"
#include "comm/control/aborted.hpp"
#include "comm/control/control_plane.hpp"
#include "comm/control/job_end.hpp"

namespace tessera::comm {
namespace {

/// Throws `error` again as T if it is one.
template <class T>
void rethrow_as(const std::exception_ptr& error, const std::string& text) {
  try {
    std::rethrow_exception(error);
  } catch (const T&) { throw T{text}; } catch (...) {  // another type handles it
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

void rethrow_with_rank(const std::exception_ptr& error, const std::string& rank,
                       const std::string& more) {
  const std::string text = fmt::format("{}: {}{}", rank, text_of(error), more);
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

// Reserved for all ranks: adding an error allocates nothing.
RankErrors::RankErrors(int ranks) {
  thrown_.reserve(static_cast<std::size_t>(ranks));
}

void RankErrors::add(int rank, std::exception_ptr error) noexcept {
  const std::scoped_lock lock{mutex_};
  if (std::ranges::find(thrown_, rank, &Thrown::rank) != thrown_.end()) { return; }
  thrown_.push_back({rank, std::move(error)});
}

std::vector<RankErrors::Cause> RankErrors::causes() const {
  std::vector<Cause> causes;
  for (const Thrown& thrown : thrown_) {
    if (is_echo(thrown.error)) { continue; }
    std::string text = text_of(thrown.error);
    const auto same = std::ranges::find(causes, text, &Cause::text);
    if (same == causes.end()) {
      causes.push_back({std::move(text), thrown});
    } else if (thrown.rank < same->lowest.rank) {
      same->lowest = thrown;
    }
  }
  return causes;
}

void RankErrors::rethrow_cause(const RankNames& names) const {
  constexpr std::size_t kMostTold = 4;
  if (thrown_.empty()) { return; }
  const std::vector<Cause> all = causes();
  if (all.empty()) {  // the program called abort, and all errors of ranks repeat it
    const Thrown& lowest = *std::ranges::min_element(thrown_, {}, &Thrown::rank);
    rethrow_with_rank(lowest.error, names.of(lowest.rank));
  }
  std::string more;
  for (std::size_t i = 1; i < all.size() && i < kMostTold; ++i) {
    more += fmt::format("\nthen {}: {}", names.of(all[i].lowest.rank), all[i].text);
  }
  rethrow_with_rank(all[0].lowest.error, names.of(all[0].lowest.rank), more);
}

void abort_with(ControlPlane& control, const std::exception_ptr& error) noexcept {
  const int status = exit_status_of(error);
  try {
    control.abort(fmt::format("{}: {}", control.names().of(control.rank()), text_of(error)),
                  status);
  } catch (...) { control.abort("out of memory", status); }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) { return no_memory_text(); } catch (const std::exception& e) {
    return e.what();
  } catch (...) { return "an exception that is not a std::exception"; }
}

}  // namespace tessera::comm
