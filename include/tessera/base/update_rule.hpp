#pragma once

namespace tessera {

/// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), all arithmetic in fp32:
///
///   m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g^2
///   w <- w - lr ( m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + wd w )
struct AdamW {
  float lr = 3e-4F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float eps = 1e-8F;
  float weight_decay = 0.1F;
};

/// Adam (Kingma & Ba 2015). Decay, if any, is coupled: it goes through the moments.
///
///   g <- g + wd w
///   m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g^2
///   w <- w - lr m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)
struct Adam {
  float lr = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float eps = 1e-8F;
  float weight_decay = 0.0F;
};

/// Lion (Chen et al. 2023): one moment, and every weight moves by the rate.
///
///   u = b1 m + (1-b1) g        w <- w - lr ( sign(u) + wd w )        m <- b2 m + (1-b2) g
struct Lion {
  float lr = 1e-4F;
  float beta1 = 0.9F;
  float beta2 = 0.99F;
  float weight_decay = 0.0F;
};

/// Stochastic gradient descent with momentum (no dampening, no Nesterov) and coupled decay:
///
///   g <- g + wd w        u <- mu u + g        w <- w - lr u
///
/// With momentum 0 there is no u and no optimizer memory.
struct SGD {
  float lr = 1e-2F;
  float momentum = 0.9F;
  float weight_decay = 0.0F;
};

}  // namespace tessera
