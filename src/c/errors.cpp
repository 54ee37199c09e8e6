#include "c/errors.hpp"

#include <fmt/format.h>

#include <array>
#include <new>

#include "tessera/base/error.hpp"

namespace tessera::c {
namespace {

struct LastError {
  tessera_status status = TESSERA_OK;
  std::string text;
  std::exception_ptr error;
};

// Per thread, as the interface states.
LastError& last_error() noexcept {
  thread_local LastError last;
  return last;
}

constexpr const char* kNoMemoryForText = "out of memory, even for the text of this error";

tessera_status status_of(const std::exception_ptr& error, std::string& text) {
  const auto keep = [&](tessera_status status, const std::exception& e) {
    text = e.what();
    return status;
  };
  try {
    std::rethrow_exception(error);
  } catch (const ContractError& e) {
    return keep(TESSERA_CONTRACT_ERROR, e);
  } catch (const ConfigError& e) {
    return keep(TESSERA_CONFIG_ERROR, e);
  } catch (const OutOfMemory& e) {
    return keep(TESSERA_OUT_OF_MEMORY, e);
  } catch (const DeviceError& e) {
    return keep(TESSERA_DEVICE_ERROR, e);
  } catch (const CommError& e) {
    return keep(TESSERA_COMM_ERROR, e);
  } catch (const NumericError& e) {
    return keep(TESSERA_NUMERIC_ERROR, e);
  } catch (const FormatError& e) {
    return keep(TESSERA_FORMAT_ERROR, e);
  } catch (const std::bad_alloc&) {
    text = "the host has no memory left";
    return TESSERA_OUT_OF_MEMORY;
  } catch (const std::exception& e) { return keep(TESSERA_ERROR, e); } catch (...) {
    text = "an exception of an unknown type";
    return TESSERA_ERROR;
  }
}

[[noreturn]] void throw_as(tessera_status status, const std::string& text) {
  switch (status) {
    case TESSERA_CONTRACT_ERROR:
      throw ContractError{text};
    case TESSERA_CONFIG_ERROR:
      throw ConfigError{text};
    case TESSERA_OUT_OF_MEMORY:
      throw OutOfMemory{text};
    case TESSERA_DEVICE_ERROR:
      throw DeviceError{text};
    case TESSERA_COMM_ERROR:
      throw CommError{text};
    case TESSERA_NUMERIC_ERROR:
      throw NumericError{text};
    case TESSERA_FORMAT_ERROR:
      throw FormatError{text};
    default:
      throw Error{text};
  }
}

constexpr std::array<const char*, 9> kNames = {
    "ok",         "contract error", "config error", "out of memory", "device error",
    "comm error", "numeric error",  "format error", "error"};

bool is_known(tessera_status status) noexcept {
  return status >= 0 && static_cast<std::size_t>(status) < kNames.size();
}

}  // namespace

tessera_status keep_error(const std::exception_ptr& error) noexcept {
  LastError& last = last_error();
  last.error = error;
  try {
    last.status = status_of(error, last.text);
  } catch (...) {
    last.status = TESSERA_OUT_OF_MEMORY;
    last.text.clear();  // tessera_last_error has a text for it that needs no memory
  }
  return last.status;
}

void forget_error() noexcept {
  LastError& last = last_error();
  last.status = TESSERA_OK;
  last.text.clear();
  last.error = nullptr;
}

void rethrow_from_callback(tessera_status status, const char* who) {
  if (status == TESSERA_OK) { return; }
  const LastError last = last_error();
  if (last.error && last.status == status) { std::rethrow_exception(last.error); }
  throw_as(status, fmt::format("{} returned {} ({}), but no call of the library failed with it on "
                               "this thread; return tessera_fail() with a text",
                               who, status, tessera_status_name(status)));
}

void Call::refuse(const std::string& what) const {
  throw ContractError{fmt::format("{}: {}", name_, what)};
}

void Call::refuse_null(const char* name) const {
  refuse(fmt::format("{} is NULL", name));
}

void Call::refuse_count(const char* name, std::uint64_t count) const {
  refuse(fmt::format("{} has {} elements, more than fit in memory; check the count", name, count));
}

}  // namespace tessera::c

using namespace tessera::c;

const char* tessera_last_error(void) {
  const auto& last = last_error();
  if (last.status == TESSERA_OUT_OF_MEMORY && last.text.empty()) { return kNoMemoryForText; }
  return last.text.c_str();
}

const char* tessera_status_name(tessera_status status) {
  return is_known(status) ? kNames[static_cast<std::size_t>(status)] : "unknown status";
}

tessera_status tessera_fail(tessera_status status, const char* message) {
  if (status == TESSERA_OK || !is_known(status)) { status = TESSERA_ERROR; }
  try {
    throw_as(status, message == nullptr || *message == '\0' ? "no reason given" : message);
  } catch (...) { return keep_error(std::current_exception()); }
}

const char* tessera_version(void) {
  return TESSERA_VERSION;
}
