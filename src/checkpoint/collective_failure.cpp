#include "checkpoint/collective_failure.hpp"

#include <algorithm>

namespace tessera::checkpoint {
namespace {

// The first character of a text.
constexpr char kResult = '+';
constexpr char kError = 'E';
constexpr char kContract = 'K';
constexpr char kConfig = 'C';
constexpr char kFormat = 'F';
constexpr char kMemory = 'M';

std::string tagged(char kind, std::string_view what) {
  return std::string{kind}.append(what);
}

}  // namespace

std::string text_of_result(std::string_view result) {
  return tagged(kResult, result);
}

std::string result_in(const std::string& text) {
  expects(text.starts_with(kResult), "result_in: the text is not a result");
  return text.substr(1);
}

bool all_have_ended(const std::vector<std::string>& all) {
  return std::ranges::none_of(all, [](const std::string& text) { return text.empty(); });
}

std::string first_failure(const std::vector<std::string>& all) {
  const auto failed = std::ranges::find_if(
      all, [](const std::string& text) { return !text.empty() && text.front() != kResult; });
  return failed == all.end() ? std::string{} : *failed;
}

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
  const std::string failure = first_failure(world.exchange(text_of_failure(mine)));
  if (!failure.empty()) { throw_failure(failure); }
}

}  // namespace tessera::checkpoint
