#include "comm/control/job_end.hpp"

#include <new>

#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

template <class... Kinds>
bool is_one_of(const std::exception_ptr& error) {
  const auto is = [&]<class Kind>(Kind*) {
    try {
      std::rethrow_exception(error);
    } catch (const Kind&) { return true; } catch (...) {
      return false;
    }
  };
  return (is(static_cast<Kinds*>(nullptr)) || ...);
}

}  // namespace

int exit_status_of(const std::exception_ptr& error) {
  if (is_one_of<ConfigError, ContractError, FormatError>(error)) { return 2; }
  if (is_one_of<OutOfMemory, std::bad_alloc>(error)) { return 3; }
  if (is_one_of<CommError>(error)) { return kCommStatus; }
  return 1;
}

}  // namespace tessera::comm
