// C = A B                       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of one core
// idea    baseline: one call of dnnl_sgemm of oneDNN, with the widest instructions of the machine
#include "product.h"
#include "sgemm.h"

namespace fathom::lab::bilinear_discovery {

Launch<Product> library(const Product&, Context&) {
  return [sgemm = Sgemm()](const Product& p, Context&) {
    sgemm(p.n, p.n, p.n, 1, p.a.data(), p.n, p.b.data(), p.n, false, p.out.data(), p.n);
  };
}

}  // namespace fathom::lab::bilinear_discovery
