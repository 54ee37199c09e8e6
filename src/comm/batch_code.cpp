#include "comm/batch_code.hpp"

#include <cstring>
#include <type_traits>

#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

/// One entry of any operation. No padding: its bytes are compared and hashed.
struct Entry {
  std::int64_t elems = 0;       // elements of the operation's data
  std::int64_t full_elems = 0;  // elements of the whole, for operations with a part and a whole
  std::int32_t root = 0;
  std::uint8_t operation = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduction = 0;
  std::uint8_t unused = 0;
};
static_assert(std::has_unique_object_representations_v<Entry>);

Entry entry_of(const AllGather& op) {
  return {.elems = op.shard.elems, .full_elems = op.full.elems};
}
Entry entry_of(const ReduceScatter& op) {
  return {.elems = op.shard.elems, .full_elems = op.full.elems};
}
Entry entry_of(const Gather& op) {  // `full` is used on the root only
  return {.elems = op.part.elems};
}
template <class Op>
Entry entry_of(const Op& op) {
  return {.elems = op.data.elems};
}

Entry entry_of(const CommOp& any) {
  Entry entry = std::visit(
      [](const auto& op) {
        Entry e = entry_of(op);
        if constexpr (requires { op.op; }) { e.reduction = static_cast<std::uint8_t>(op.op); }
        if constexpr (requires { op.root; }) { e.root = op.root; }
        return e;
      },
      any);
  entry.operation = static_cast<std::uint8_t>(any.index());
  entry.dtype = static_cast<std::uint8_t>(dtype_of(any));
  return entry;
}

/// Whether the entry is valid for its operation: fields that the operation does not use are 0.
bool is_sound(const Entry& entry, const CommOp& op) {
  const Entry again = entry_of(op);
  return std::memcmp(&again, &entry, sizeof entry) == 0;
}

void add(Batch& batch, const Entry& entry) {
  expects(entry.dtype <= static_cast<std::uint8_t>(DType::fp64), "decode: unknown dtype number");
  expects(entry.reduction <= static_cast<std::uint8_t>(ReduceOp::max),
          "decode: unknown reduction number");
  expects(entry.elems >= 0 && entry.full_elems >= 0, "decode: negative number of elements");
  const auto dtype = static_cast<DType>(entry.dtype);
  const auto reduction = static_cast<ReduceOp>(entry.reduction);
  const View given{nullptr, entry.elems, dtype};
  const View full{nullptr, entry.full_elems, dtype};
  switch (entry.operation) {  // in the order of CommOp's alternatives
    case 0:
      batch.all_gather(given, full);
      return;
    case 1:
      batch.reduce_scatter(full, given, reduction);
      return;
    case 2:
      batch.all_reduce(given, reduction);
      return;
    case 3:
      batch.broadcast(given, entry.root);
      return;
    case 4:
      batch.reduce(given, reduction, entry.root);
      return;
    case 5:
      batch.gather(given, full, entry.root);
      return;
    default:
      expects(false, "decode: unknown operation number");
  }
}

}  // namespace

void encode(const Batch& batch, std::string& code) {
  const std::uint64_t label_bytes = batch.label().size();
  code.assign(reinterpret_cast<const char*>(&label_bytes), sizeof label_bytes);
  code += batch.label();
  for (const CommOp& op : batch.ops()) {
    const Entry entry = entry_of(op);
    code.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
}

Batch decode(std::string_view code) {
  std::uint64_t label_bytes = 0;
  expects(code.size() >= sizeof label_bytes, "decode: the code is cut short");
  std::memcpy(&label_bytes, code.data(), sizeof label_bytes);
  code.remove_prefix(sizeof label_bytes);
  expects(label_bytes <= code.size(), "decode: the code is cut short");
  Batch batch{std::string{code.substr(0, label_bytes)}};
  code.remove_prefix(label_bytes);
  expects(code.size() % sizeof(Entry) == 0, "decode: the code is cut short");
  for (; !code.empty(); code.remove_prefix(sizeof(Entry))) {
    Entry entry;
    std::memcpy(&entry, code.data(), sizeof entry);
    add(batch, entry);
    expects(is_sound(entry, batch.ops().back()),
            "decode: an entry sets a field that its operation does not use");
  }
  return batch;
}

}  // namespace tessera::comm
