// Least squares: by QR where the rank is full, by singular values otherwise.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

#include "ops/linalg/BatchLinearAlgebra.h"
#include "ops/linalg_lstsq.h"

namespace ocl::native {

using at::Tensor;

namespace {

/// The drivers of LAPACK that CPU torch takes. gelsy, the default, is done as gelsd is: both find
/// the solution of the least norm, but for matrices within rounding of another rank.
enum class Driver { gels, gelsy, gelsd, gelss };

Driver driver_named(std::optional<std::string_view> name) {
  if (!name) return Driver::gelsy;
  std::string lower(*name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::array<std::string_view, 4> names{"gels", "gelsy", "gelsd", "gelss"};
  const auto found = std::find(names.begin(), names.end(), lower);
  TORCH_CHECK(
      found != names.end(),
      "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  return static_cast<Driver>(found - names.begin());
}

struct Solution {
  Tensor x, residuals, rank, singular_values;
};

/// The squared norms of the columns.
Tensor squared_norms(const Tensor& rest) { return rest.abs().square_().sum(-2); }

/// The QR factors of A, or of its adjoint if that is taller: Q as LAPACK's geqrf leaves it, since
/// its product with a few columns costs far less than Q.
struct Factors {
  Tensor reflections, tau, r;
  bool wide;

  /// Q c, or its adjoint's product with c, of all of Q's columns.
  Tensor multiply(const Tensor& c, bool adjoint) const {
    const auto [vectors, columns] =
        at::native::_linalg_broadcast_batch_dims(reflections, c, /*name=*/nullptr);
    c10::DimVector sizes(vectors.sizes().begin(), vectors.sizes().end() - 2);
    sizes.push_back(tau.size(-1));
    const Tensor result = at::native::cloneBatchedColumnMajor(columns);
    householder_multiply(vectors, tau.expand(sizes), result, /*left=*/true, adjoint);
    return result;
  }
};

Factors factors_of(const Tensor& a) {
  const bool wide = a.size(-2) < a.size(-1);
  const Tensor factors = at::native::cloneBatchedColumnMajor(wide ? a.mH() : a);
  const int64_t steps = factors.size(-1);
  c10::DimVector sizes(a.sizes().begin(), a.sizes().end() - 2);
  sizes.push_back(steps);
  const Tensor tau = at::empty(sizes, a.options());
  householder_factor(factors, tau);
  return {factors, tau, factors.narrow(-2, 0, steps).triu(), wide};
}

/// With A of full rank.
Solution by_qr(const Factors& factors, const Tensor& b, bool residuals) {
  const Tensor& r = factors.r;
  const int64_t steps = r.size(-1), rows = factors.reflections.size(-2);
  Solution result;
  if (factors.wide) {
    const Tensor x = at::linalg_solve_triangular(r.mH(), b, /*upper=*/false);
    result.x = factors.multiply(at::constant_pad_nd(x, {0, 0, 0, rows - steps}), /*adjoint=*/false);
  } else {
    const Tensor coordinates = factors.multiply(b, /*adjoint=*/true);
    result.x = at::linalg_solve_triangular(r, coordinates.narrow(-2, 0, steps), /*upper=*/true);
    if (residuals) result.residuals = squared_norms(coordinates.narrow(-2, steps, rows - steps));
  }
  return result;
}

Solution by_gels(const Tensor& a, const Tensor& b, bool residuals) {
  const Factors factors = factors_of(a);
  // LAPACK's gels leaves nothing of a matrix of zeros, and takes the first zero on the diagonal of
  // any other for a missing rank. What isn't finite shows on the diagonal as well.
  const Tensor nothing = factors.r.eq(0).flatten(-2).all(-1);
  const Tensor diagonal = factors.r.diagonal(0, -2, -1);
  if (diagonal.numel() != 0) {
    const Tensor bad = diagonal.eq(0).logical_or_(diagonal.isfinite().logical_not_());
    const Tensor failed = bad.any(-1).logical_and_(nothing.logical_not());
    const Tensor info = bad.to(at::kInt).argmax(-1).add(1).mul(failed).to(at::kInt);
    at::_linalg_check_errors(info, "torch.linalg.lstsq", a.dim() == 2);
  }
  Solution result = by_qr(factors, b, residuals);
  const Tensor column = nothing.unsqueeze(-1);
  result.x.masked_fill_(column.unsqueeze(-1), 0);
  if (residuals) result.residuals.masked_fill_(column, 0);
  return result;
}

/// Whether no singular value of the triangles is as small as `rcond` times the largest: the norms
/// of a matrix and its inverse bound its condition, and cost far less than singular values.
bool surely_regular(const Tensor& r, double rcond) {
  const Tensor identity = at::eye(r.size(-1), r.options()).expand_as(r);
  const Tensor inverse = at::linalg_solve_triangular(r, identity, /*upper=*/true);
  const Tensor condition =
      at::linalg_vector_norm(r, 2, {-2, -1}).mul(at::linalg_vector_norm(inverse, 2, {-2, -1}));
  return condition.mul(rcond).lt(1).all().item<bool>();
}

Solution by_svd(const Tensor& a, const Tensor& b, double rcond, bool residuals) {
  const auto [u, s, vh] = at::_linalg_svd(a, /*full_matrices=*/false, /*compute_uv=*/true);
  Solution result;
  result.singular_values = s;
  // An empty matrix has no largest value.
  const Tensor counts = s.size(-1) == 0 ? s.to(at::kBool) : s.gt(s.narrow(-1, 0, 1).mul(rcond));
  result.rank = counts.sum(-1);
  const Tensor inverse = s.reciprocal().masked_fill_(counts.logical_not(), 0).unsqueeze(-1);
  const Tensor coordinates = at::matmul(u.mH(), b);
  result.x = at::matmul(vh.mH(), coordinates.mul(inverse));
  // CPU torch gives them only if every matrix of the batch has full rank.
  if (residuals && result.rank.eq(a.size(-1)).all().item<bool>())
    result.residuals = squared_norms(b.sub(at::matmul(u, coordinates)));
  return result;
}

Solution by_gelsy(const Tensor& a, const Tensor& b, double rcond) {
  if (a.numel() != 0) {
    const Factors factors = factors_of(a);
    if (surely_regular(factors.r, rcond)) {
      Solution result = by_qr(factors, b, /*residuals=*/false);
      const at::IntArrayRef batch(a.sizes().data(), a.dim() - 2);
      // Without a right side LAPACK's gelsy does not look at the matrix.
      const int64_t rank = b.size(-1) == 0 ? 0 : factors.r.size(-1);
      result.rank = at::full(batch, rank, a.options().dtype(at::kLong));
      return result;
    }
  }
  Solution result = by_svd(a, b, rcond, /*residuals=*/false);
  if (b.size(-1) == 0) result.rank.zero_();
  result.singular_values.reset();
  return result;
}

void check_arguments(const Tensor& a, const Tensor& b, const Tensor& solution,
                     const Tensor& residuals, const Tensor& rank, const Tensor& singular_values) {
  const char* const name = "torch.linalg.lstsq";
  TORCH_CHECK(a.dim() >= 2, name, ": input must have at least 2 dimensions.");
  TORCH_CHECK(b.dim() >= 1, name, ": other must have at least 1 dimension.");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name,
              ": Expected input and other to have the same dtype, but got input's dtype ",
              a.scalar_type(), " and other's dtype ", b.scalar_type());
  const int64_t difference = a.dim() - b.dim();
  TORCH_CHECK(difference == 0 || difference == 1, name,
              ": input.dim() must be greater or equal to other.dim() and (input.dim() - "
              "other.dim()) <= 1");
  const int64_t rows = at::native::linalg_solve_is_vector_rhs(a, b) ? -1 : -2;
  TORCH_CHECK(b.dim() >= -rows && a.size(-2) == b.size(rows), name,
              ": input.size(-2) should match other.size(", rows, ")");
  const c10::ScalarType real = c10::toRealValueType(a.scalar_type());
  at::native::checkSameDevice(name, b, a, "other");
  at::native::checkSameDevice(name, solution, a, "solution");
  at::native::checkSameDevice(name, residuals, a, "residuals");
  at::native::checkSameDevice(name, rank, a, "rank");
  at::native::checkSameDevice(name, singular_values, a, "singular_values");
  at::native::checkLinalgCompatibleDtype(name, solution, a, "solution");
  at::native::checkLinalgCompatibleDtype(name, residuals.scalar_type(), real, "residuals");
  at::native::checkLinalgCompatibleDtype(name, rank.scalar_type(), at::kLong, "rank");
  at::native::checkLinalgCompatibleDtype(name, singular_values.scalar_type(), real,
                                         "singular_values");
}

/// The right side as matrices. One dimension less than A's makes it vectors if its sizes are A's,
/// but for the last; else matrices, in whose batch CPU torch counts the rows.
Tensor right_side(const Tensor& a, const Tensor& b, bool vector) {
  if (vector) return b.unsqueeze(-1);
  if (b.dim() == a.dim()) return b;
  const at::IntArrayRef sizes = b.sizes();
  auto expanded =
      at::infer_size_dimvector(a.sizes().slice(0, a.dim() - 2), sizes.slice(0, sizes.size() - 1));
  expanded.append(sizes.end() - 2, sizes.end());
  return b.expand(expanded);
}

/// An undefined result is an empty one.
void give(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.defined() ? result.sizes() : at::IntArrayRef({0}));
  if (result.defined()) out.copy_(result);
}

/// A solution of no elements yet gets LAPACK's strides, as on the CPU: columns `longest` apart, as
/// long as the longer of the solution's and the right side's.
void give_solution(Tensor& out, const Tensor& x, bool vector, int64_t longest) {
  const Tensor result = vector ? x.squeeze(-1) : x;
  if (out.numel() != 0 || out.scalar_type() != x.scalar_type()) return give(out, result);
  c10::DimVector shape(x.sizes().begin(), x.sizes().end() - 2);
  shape.push_back(x.size(-1));
  shape.push_back(longest);
  out.resize_(shape);
  const Tensor columns = out.mT().narrow(-2, 0, x.size(-2));
  const Tensor wanted = vector ? columns.squeeze(-1) : columns;
  out.as_strided_(wanted.sizes(), wanted.strides());
  out.copy_(result);
}

}  // namespace

std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> linalg_lstsq_out(
    const Tensor& self, const Tensor& b, std::optional<double> rcond,
    std::optional<std::string_view> driver, Tensor& solution, Tensor& residuals, Tensor& rank,
    Tensor& singular_values) {
  check_arguments(self, b, solution, residuals, rank, singular_values);
  const Driver by = driver_named(driver);
  const double epsilon = at::native::_get_epsilon(c10::toRealValueType(self.scalar_type()));
  const int64_t rows = self.size(-2), columns = self.size(-1);
  // A negative one stands for the dtype's precision in LAPACK.
  const double least = !rcond        ? epsilon * static_cast<double>(std::max(rows, columns))
                       : *rcond >= 0 ? *rcond
                                     : epsilon;
  const bool vector = at::native::linalg_solve_is_vector_rhs(self, b);
  const Tensor right = right_side(self, b, vector);
  const bool with_residuals = rows > columns;
  const Solution result = by == Driver::gels    ? by_gels(self, right, with_residuals)
                          : by == Driver::gelsy ? by_gelsy(self, right, least)
                                                : by_svd(self, right, least, with_residuals);
  give_solution(solution, result.x, vector, std::max(rows, columns));
  give(residuals, result.residuals);
  give(rank, result.rank);
  give(singular_values, result.singular_values);
  return {solution, residuals, rank, singular_values};
}

}  // namespace ocl::native
