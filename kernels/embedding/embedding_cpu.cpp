#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/position_of.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class To, class From>
void add_row(To* to, const From* from, std::int64_t elems) {
  for_lanes(elems, [=](std::int64_t i, auto lanes) {
    lanes.write(to + i, lanes.read(to + i) + lanes.read(from + i));
  });
}

template <class Table, class Y>
void forward(const EmbeddingForward& args, const device::Chunk& rows) {
  const std::int64_t hidden = args.hidden;
  const TokenRows table{args.first_token, args.table_tokens};
  for (std::int64_t at = rows.first; at < rows.last; ++at) {
    const std::int64_t row = table.row_of(args.tokens[at]);
    Y* y = args.y.as<Y>() + at * hidden;
    const std::int64_t place = position_of(args.first_key, at, at % args.seq);
    if (row < 0) {
      for_lanes(hidden, [=](std::int64_t h, auto lanes) { lanes.write(y + h, Vec{}); });
      if (args.position_table) {
        add_row(y, args.position_table.as<Table>() + place * hidden, hidden);
      }
      continue;
    }
    const Table* token = args.token_table.as<Table>() + row * hidden;
    if (!args.position_table) {
      for_lanes(hidden,
                [=](std::int64_t h, auto lanes) { lanes.write(y + h, lanes.read(token + h)); });
      continue;
    }
    const Table* position = args.position_table.as<Table>() + place * hidden;
    for_lanes(hidden, [=](std::int64_t h, auto lanes) {
      lanes.write(y + h, lanes.read(token + h) + lanes.read(position + h));
    });
  }
}

// Several rows are added into one row of a table: threads divide the columns, so that the rows are
// added in order.
template <class Dy, class Table>
void backward(const EmbeddingBackward& args, const device::Chunk& columns) {
  const std::int64_t hidden = args.hidden;
  const TokenRows table{args.first_token, args.table_tokens};
  for (std::int64_t at = 0; at < args.batch * args.seq; ++at) {
    const Dy* dy = args.dy.as<Dy>() + at * hidden + columns.first;
    const std::int64_t row = table.row_of(args.tokens[at]);
    if (args.dtoken_table && row >= 0) {
      add_row(args.dtoken_table.as<Table>() + row * hidden + columns.first, dy, columns.size());
    }
    if (args.dposition_table) {
      const std::int64_t place = position_of(args.first_key, at, at % args.seq);
      add_row(args.dposition_table.as<Table>() + place * hidden + columns.first, dy,
              columns.size());
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, Stream stream) {
  expects(!args.position_table || args.token_table.dtype == args.position_table.dtype,
          "embedding_forward: both tables are of one dtype");
  device::enqueue(stream, [=] {
    with_types(args.token_table.dtype, args.y.dtype, [&]<class Table, class Y>(Types<Table, Y>) {
      device::parallel_for(stream, args.batch * args.seq, row_grain(args.hidden),
                           [&](const device::Chunk& rows) { forward<Table, Y>(args, rows); });
    });
  });
}

void embedding_backward(const EmbeddingBackward& args, Stream stream) {
  const Values table = args.dtoken_table ? args.dtoken_table : args.dposition_table;
  expects(!args.dposition_table || args.dposition_table.dtype == table.dtype,
          "embedding_backward: both gradients are of one dtype");
  device::enqueue(stream, [=] {
    with_types(args.dy.dtype, table.dtype, [&]<class Dy, class Table>(Types<Dy, Table>) {
      device::parallel_for(
          stream, args.hidden, column_grain(args.batch * args.seq),
          [&](const device::Chunk& columns) { backward<Dy, Table>(args, columns); });
    });
  });
}

}  // namespace tessera::kernels::cpu
