#include "tools/common/exit_status.hpp"

#include <fmt/format.h>

#include <new>
#include <string>

#include "tessera/base/error.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/options/option_words.hpp"

namespace tessera::tools {
namespace {

ExitStatus told(const std::string& what, ExitStatus status) {
  tell(fmt::format("error: {}\n", what));
  return status;
}

}  // namespace

ExitStatus guarded(const std::function<void()>& body) {
  try {
    body();
    return ExitStatus::done;
  } catch (const Ended& ended) {
    return static_cast<ExitStatus>(ended.status);
  } catch (const ConfigError& error) {
    return told(with_options_for_fields(error.what()), ExitStatus::usage);
  } catch (const FormatError& error) {
    return told(error.what(), ExitStatus::usage);
  } catch (const ContractError& error) {
    // The command checks its options itself; otherwise the request broke a rule of the library.
    return told(with_options_for_fields(error.what()), ExitStatus::usage);
  } catch (const OutOfMemory& error) {
    return told(error.what(), ExitStatus::memory);
  } catch (const std::bad_alloc&) {
    return told("out of memory; use fewer ranks, a smaller batch or a smaller model",
                ExitStatus::memory);
  } catch (const CommError& error) {
    return told(error.what(), ExitStatus::comm);
  } catch (const std::exception& error) { return told(error.what(), ExitStatus::other); }
}

}  // namespace tessera::tools
