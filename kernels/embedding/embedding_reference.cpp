#include "kernels/embedding/embedding.hpp"
#include "kernels/support/position_of.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {

void embedding_forward(const EmbeddingForward& args, Stream) {
  const TokenRows table{args.first_token, args.table_tokens};
  for (std::int64_t b = 0; b < args.batch; ++b) {
    for (std::int64_t t = 0; t < args.seq; ++t) {
      const std::int64_t at = b * args.seq + t;
      const std::int64_t place = position_of(args.first_key, at, t);
      const std::int64_t row = table.row_of(args.tokens[at]);
      for (std::int64_t h = 0; h < args.hidden; ++h) {
        const float token = row < 0 ? 0.0F : element(args.token_table, row * args.hidden + h);
        const bool placed{args.position_table};
        set_element(args.y, at * args.hidden + h,
                    placed ? token + element(args.position_table, place * args.hidden + h) : token);
      }
    }
  }
}

void embedding_backward(const EmbeddingBackward& args, Stream) {
  const TokenRows table{args.first_token, args.table_tokens};
  const auto add = [](Values to, std::int64_t i, float value) {
    if (to) { set_element(to, i, element(to, i) + value); }
  };
  for (std::int64_t at = 0; at < args.batch * args.seq; ++at) {
    const std::int64_t place = position_of(args.first_key, at, at % args.seq);
    const std::int64_t row = table.row_of(args.tokens[at]);
    for (std::int64_t h = 0; h < args.hidden; ++h) {
      const float dy = element(args.dy, at * args.hidden + h);
      if (row >= 0) { add(args.dtoken_table, row * args.hidden + h, dy); }
      add(args.dposition_table, place * args.hidden + h, dy);
    }
  }
}

}  // namespace tessera::kernels::reference
