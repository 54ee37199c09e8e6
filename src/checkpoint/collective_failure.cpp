#include "checkpoint/collective_failure.hpp"

#include <string_view>
#include <vector>

namespace tessera {
namespace {

constexpr char kError = 'E';
constexpr char kContract = 'K';
constexpr char kConfig = 'C';
constexpr char kFormat = 'F';
constexpr char kMemory = 'M';

std::string tagged(char kind, std::string_view what) {
  return std::string{kind}.append(what);
}

}  // namespace

std::string text_of_failure(const std::exception_ptr& failure) {
  if (!failure) { return {}; }
  try {
    std::rethrow_exception(failure);
  } catch (const ContractError& error) {
    return tagged(kContract, error.what());
  } catch (const ConfigError& error) {
    return tagged(kConfig, error.what());
  } catch (const FormatError& error) {
    return tagged(kFormat, error.what());
  } catch (const OutOfMemory& error) {
    return tagged(kMemory, error.what());
  } catch (const std::bad_alloc&) {
    return tagged(kMemory, "the host has no memory left");
  } catch (const std::exception& error) { return tagged(kError, error.what()); } catch (...) {
    return tagged(kError, "unknown error");
  }
}

void throw_failure(const std::string& text) {
  const std::string what = text.substr(1);
  switch (text.front()) {
    case kContract:
      throw ContractError{what};
    case kConfig:
      throw ConfigError{what};
    case kFormat:
      throw FormatError{what};
    case kMemory:
      throw OutOfMemory{what};
    default:
      throw Error{what};
  }
}

void agree_on_failure(World& world, const std::exception_ptr& mine) {
  const std::vector<std::string> all = world.exchange(text_of_failure(mine));
  for (const std::string& text : all) {
    if (!text.empty()) { throw_failure(text); }
  }
}

}  // namespace tessera
