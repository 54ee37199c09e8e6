#include "profile/records.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"

namespace tessera::profile {
namespace {

using trace::Kind;
using trace::Record;

Category category_named(std::string_view name) {
  for (std::size_t c = 0; c < kCategories; ++c) {
    if (to_string(static_cast<Category>(c)) == name) { return static_cast<Category>(c); }
  }
  throw ContractError{fmt::format("a record of memory names '{}', which is not a category", name)};
}

[[noreturn]] void refuse_release(const Record& record, std::size_t in_use) {
  throw ContractError{
      fmt::format("the records release {} bytes of {} ({}), but {} are in use; pass all records "
                  "since the World was made, in order",
                  record.bytes, record.what, record.unit, in_use)};
}

}  // namespace

bool is_span(const Record& record) noexcept {
  return record.kind == Kind::compute || record.kind == Kind::collective ||
         record.kind == Kind::copy || record.kind == Kind::host;
}

bool is_memory(const Record& record) noexcept {
  return record.kind == Kind::allocate || record.kind == Kind::release ||
         record.kind == Kind::use || record.kind == Kind::unuse;
}

bool one_change(const Record& first, const Record& second) noexcept {
  const bool taken = first.kind == Kind::allocate && second.kind == Kind::unuse;
  const bool given_back = first.kind == Kind::use && second.kind == Kind::release;
  return (taken || given_back) && first.what == second.what && first.unit == second.unit &&
         first.bytes == second.bytes;
}

void Progress::apply(const Record& record) {
  if (record.kind == Kind::issue && record.what == record.phase) {  // a scope was opened, or `step`
    phase_ = record.phase;
    unit_ = record.unit;
  }
  if (!is_memory(record)) { return; }
  phase_ = record.phase;
  unit_ = record.during;
  std::size_t& bytes = in_use_[category_named(record.what)];
  if (record.kind == Kind::allocate || record.kind == Kind::use) {
    bytes += record.bytes;
    return;
  }
  if (bytes < record.bytes) { refuse_release(record, bytes); }
  bytes -= record.bytes;
}

}  // namespace tessera::profile
