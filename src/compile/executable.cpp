#include "compile/executable.h"

#include <algorithm>
#include <cstring>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/gemm/linear.h"
#include "measure/clock.h"

namespace fathom::compile {
namespace {

// Rows of a matmul that its tape finishes before the next.
int64_t rows_of_chunk(int64_t columns, const Schedule& schedule) {
  constexpr int64_t kRowBlock = 48;  // linear_cpu works on as many at once
  return std::max<int64_t>(schedule.chunk / std::max<int64_t>(columns, 1) / kRowBlock, 1) * kRowBlock;
}

int64_t bytes_in_memory(const Type& type, std::span<const int64_t> symbols) {
  return product(type.shape).value(symbols) * traits(type.dtype).bits / 8;
}

void write_iota(const Type& type, int64_t axis, std::span<const int64_t> symbols, std::byte* to) {
  const std::vector<int64_t> extents = values(type.shape, symbols);
  const auto a                       = static_cast<size_t>(axis);
  const int64_t repeat = count(std::span(extents).subspan(a + 1)), all = count(extents);
  for (int64_t i = 0; i < all; ++i) {
    const auto position = static_cast<float>(i / repeat % extents[a]);
    if (type.dtype == DType::bf16)
      reinterpret_cast<bf16*>(to)[i] = bf16(position);
    else
      reinterpret_cast<float*>(to)[i] = position;
  }
}

// Row after row of the result: zeros, and elements of the operand where it has that row.
void write_pad(const Node& node, const Type& operand, std::span<const int64_t> symbols, const std::byte* from,
               std::byte* to, ThreadPool& pool) {
  const std::vector<int64_t> part = values(operand.shape, symbols), whole = values(node.type.shape, symbols);
  const std::vector<int64_t>&starts = node.attributes.starts, &steps = node.attributes.steps;
  const int64_t width = traits(operand.dtype).bits / 8, columns = whole.empty() ? 1 : whole.back();
  const size_t outer = whole.empty() ? 0 : whole.size() - 1;
  pool.parallel_for(count(std::span(whole).first(outer)), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* const row_to = to + row * columns * width;
      std::memset(row_to, 0, static_cast<size_t>(columns * width));
      int64_t source = 0, stride = 1, rest = row;
      bool inside = true;
      for (size_t axis = outer; axis-- > 0;) {
        const int64_t offset = rest % whole[axis] - starts[axis];
        rest /= whole[axis];
        inside = inside && offset >= 0 && offset % steps[axis] == 0 && offset / steps[axis] < part[axis];
        source += offset / steps[axis] * stride;
        stride *= part[axis];
      }
      if (!inside) continue;
      const int64_t n    = part.empty() ? 1 : part.back();
      const int64_t step = part.empty() ? 1 : steps.back(), start = part.empty() ? 0 : starts.back();
      const auto scatter = [&]<class T>(const T* row_from, T* first) {
        for (int64_t i = 0; i < n; ++i) first[i * step] = row_from[i];
      };
      if (operand.dtype == DType::bf16)
        scatter(reinterpret_cast<const bf16*>(from) + source * n, reinterpret_cast<bf16*>(row_to) + start);
      else
        scatter(reinterpret_cast<const float*>(from) + source * n, reinterpret_cast<float*>(row_to) + start);
    }
  });
}

}  // namespace

Executable::Executable(Graph graph, Plan plan, Scheduler scheduler)
    : graph_(std::move(graph)),
      plan_(std::move(plan)),
      scheduler_(std::move(scheduler)),
      schedules_(plan_.groups.size()) {
  output_.assign(graph_.nodes.size(), -1);
  inputs_ = graph_.inputs();
  for (size_t o = graph_.outputs.size(); o-- > 0;)
    output_[static_cast<size_t>(graph_.outputs[o].node)] = static_cast<int>(o);
  for (int id = 0; id < graph_.size(); ++id)
    if (plan_.stored[static_cast<size_t>(id)] && output_[static_cast<size_t>(id)] < 0) in_slab_.push_back(id);
}

void Executable::set_schedules(Schedules schedules) {
  FATHOM_EXPECT(schedules.size() == plan_.groups.size(), "a schedule for each launch");
  scheduler_ = nullptr;
  schedules_ = std::move(schedules);
  bound_.reset();
}

const Schedules& Executable::scheduled(std::span<const int64_t> symbols, ThreadPool& pool) {
  std::vector<int64_t> at;
  for (const int64_t symbol : symbols) at.push_back(bucket(symbol));
  at.push_back(pool.threads());
  const auto known = scheduled_.find(at);
  if (known != scheduled_.end()) return known->second;
  Schedules schedules = scheduler_(graph_, plan_, symbols, pool);
  FATHOM_EXPECT(schedules.size() == plan_.groups.size(), "a schedule for each launch");
  return scheduled_.emplace(std::move(at), std::move(schedules)).first->second;
}

int64_t Executable::extent(int node, size_t axis, std::span<const int64_t> symbols) const {
  return graph_[node].type.shape[axis].value(symbols);
}

std::vector<Lifetime> Executable::lifetimes(std::span<const int64_t> symbols) const {
  const int launches = static_cast<int>(plan_.groups.size());
  std::vector<int> first(graph_.nodes.size()), last(graph_.nodes.size());
  for (int launch = 0; launch < launches; ++launch) {
    const Group& group = plan_.groups[static_cast<size_t>(launch)];
    const auto reads   = [&](int node) {
      last[static_cast<size_t>(base_of(graph_, plan_.roles, node))] = launch;
    };
    for (const int id : group.nodes) first[static_cast<size_t>(id)] = last[static_cast<size_t>(id)] = launch;
    if (group.tape)
      for (const Leaf& leaf : group.tape->leaves) reads(leaf.node);
    if (group.direct() >= 0)
      for (const int operand : graph_[group.direct()].operands) reads(operand);
  }
  // An output that shows another node's memory is copied from there at the end.
  for (const Output& output : graph_.outputs)
    last[static_cast<size_t>(base_of(graph_, plan_.roles, output.node))] = launches;
  std::vector<Lifetime> lifetimes;
  for (const int id : in_slab_)
    lifetimes.push_back({bytes_in_memory(graph_[id].type, symbols), first[static_cast<size_t>(id)],
                         last[static_cast<size_t>(id)]});
  return lifetimes;
}

std::unique_ptr<Executable::Bound> Executable::bind(std::span<const int64_t> symbols, int threads) const {
  auto bound     = std::make_unique<Bound>();
  bound->symbols = {symbols.begin(), symbols.end()};
  bound->threads = threads;
  bound->slab    = slab(symbols);
  bound->memory  = Buffer<std::byte>(bound->slab.bytes);
  bound->at.resize(graph_.nodes.size());
  for (size_t i = 0; i < in_slab_.size(); ++i)
    bound->at[static_cast<size_t>(in_slab_[i])] = bound->memory.data() + bound->slab.offsets[i];

  int64_t scratch = 0, operand = 0, result = 0, matmul = 0;
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    const Group& group       = plan_.groups[g];
    const Schedule& schedule = schedules_[g];
    Launch launch;
    if (group.tape) launch.leaves.resize(group.tape->leaves.size());
    if (group.matmul >= 0) {
      const int x         = graph_[group.matmul].operands[0];
      const int64_t depth = extent(x, 1, symbols), columns = extent(group.matmul, 1, symbols);
      const bool converted = graph_[x].type.dtype == DType::bf16;
      launch.rows          = extent(x, 0, symbols);
      launch.chunk =
          group.tape || converted
              ? std::min(rows_of_chunk(std::max(columns, converted ? depth : 0), schedule), launch.rows)
              : launch.rows;
      if (converted) operand = std::max(operand, launch.chunk * depth);
      if (group.tape) result = std::max(result, launch.chunk * columns);
      matmul = std::max(matmul, kernels::linear_cpu_scratch_bytes(launch.chunk, depth, threads));
      if (group.tape) launch.tape.emplace(graph_, *group.tape, symbols, schedule.block, launch.chunk);
      if (group.tape && launch.chunk > 0 && launch.rows % launch.chunk)
        launch.last_tape.emplace(graph_, *group.tape, symbols, schedule.block, launch.rows % launch.chunk);
    } else if (group.tape) {
      launch.tape.emplace(graph_, *group.tape, symbols, schedule.block);
    }
    for (const auto* tape : {&launch.tape, &launch.last_tape})
      if (*tape) scratch = std::max(scratch, (*tape)->scratch_floats(threads));
    bound->launches.push_back(std::move(launch));
  }
  bound->scratch = Buffer<float>(scratch);
  bound->operand = Buffer<float>(operand);
  bound->result  = Buffer<float>(result);
  bound->matmul  = Buffer<std::byte>(matmul);
  return bound;
}

void Executable::run_matmul(const Group& group, Launch& launch, ThreadPool& pool) {
  const Node& node   = graph_[group.matmul];
  const Bound& bound = *bound_;
  const auto memory = [&](int id) { return bound.at[static_cast<size_t>(base_of(graph_, plan_.roles, id))]; };
  const int64_t depth   = extent(node.operands[0], 1, bound.symbols),
                columns = extent(group.matmul, 1, bound.symbols);
  const View<const bf16, 2> w(reinterpret_cast<const bf16*>(memory(node.operands[1])), {columns, depth});
  const bool converted = graph_[node.operands[0]].type.dtype == DType::bf16;
  const bool kept      = !group.tape || group.keeps_matmul;
  const Execution on{.threads = &pool, .scratch = bound.matmul.view()};

  for (int64_t first = 0; first < launch.rows; first += launch.chunk) {
    const int64_t rows = std::min(launch.chunk, launch.rows - first);
    const float* x     = reinterpret_cast<const float*>(memory(node.operands[0])) + first * depth;
    if (converted) {
      const bf16* from = reinterpret_cast<const bf16*>(memory(node.operands[0])) + first * depth;
      pool.parallel_for(rows * depth, 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) bound.operand.data()[i] = static_cast<float>(from[i]);
      });
      x = bound.operand.data();
    }
    float* y = kept ? reinterpret_cast<float*>(memory(group.matmul)) + first * columns : bound.result.data();
    kernels::linear_cpu({x, {rows, depth}}, w, {}, kernels::Output::overwrite, {y, {rows, columns}}, on);
    if (!group.tape) continue;
    const TapeCpu& tape = rows == launch.chunk ? *launch.tape : *launch.last_tape;
    for (size_t l = 0; l < launch.leaves.size(); ++l) {
      const int leaf   = group.tape->leaves[l].node;
      launch.leaves[l] = leaf == group.matmul ? reinterpret_cast<std::byte*>(y)
                                              : memory(leaf) + first * tape.first_axis_bytes(l);
    }
    tape.run(launch.leaves, bound.scratch.data(), pool);
  }
}

void Executable::run_launch(size_t g, ThreadPool& pool) {
  const Group& group = plan_.groups[g];
  Launch& launch     = bound_->launches[g];
  const auto memory  = [&](int id) {
    return bound_->at[static_cast<size_t>(base_of(graph_, plan_.roles, id))];
  };
  if (group.matmul >= 0) return run_matmul(group, launch, pool);
  if (group.tape) {
    for (size_t l = 0; l < launch.leaves.size(); ++l) launch.leaves[l] = memory(group.tape->leaves[l].node);
    return launch.tape->run(launch.leaves, bound_->scratch.data(), pool);
  }
  const int id     = group.nodes[0];
  const Node& node = graph_[id];
  if (node.op == Op::iota) return write_iota(node.type, node.attributes.axes[0], bound_->symbols, memory(id));
  const int operand = node.operands[0];
  write_pad(node, graph_[operand].type, bound_->symbols, memory(operand), memory(id), pool);
}

void Executable::run(std::span<const int64_t> symbols, std::span<const void* const> inputs,
                     std::span<void* const> outputs, ThreadPool& pool, std::span<int64_t> launch_ns) {
  FATHOM_EXPECT(inputs.size() == inputs_.size() && outputs.size() == graph_.outputs.size() &&
                    symbols.size() == graph_.symbols.size(),
                "a pointer for each input and output, a value for each symbol");
  if (!bound_ || bound_->threads != pool.threads() || !std::ranges::equal(bound_->symbols, symbols)) {
    if (scheduler_) schedules_ = scheduled(symbols, pool);
    bound_ = bind(symbols, pool.threads());
  }
  std::vector<std::byte*>& at = bound_->at;
  // Inputs are only read; leaves of tapes are one kind of pointer.
  for (size_t i = 0; i < inputs.size(); ++i)
    at[static_cast<size_t>(inputs_[i])] = static_cast<std::byte*>(const_cast<void*>(inputs[i]));
  for (size_t id = 0; id < at.size(); ++id)
    if (plan_.stored[id] && output_[id] >= 0)
      at[id] = static_cast<std::byte*>(outputs[static_cast<size_t>(output_[id])]);

  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    ThreadPool& threads = schedules_[g].threads ? pool : caller_;
    if (launch_ns.empty()) {
      run_launch(g, threads);
      continue;
    }
    const int64_t begin = measure::now_ns(measure::Clock::wall);
    run_launch(g, threads);
    launch_ns[g] = measure::now_ns(measure::Clock::wall) - begin;
  }
  // Outputs that are inputs, the same node twice, or another node's memory under another shape.
  for (size_t o = 0; o < outputs.size(); ++o) {
    const int id          = graph_.outputs[o].node;
    const std::byte* from = at[static_cast<size_t>(base_of(graph_, plan_.roles, id))];
    const int64_t bytes   = bytes_in_memory(graph_[id].type, symbols);
    if (from != outputs[o] && bytes > 0) std::memcpy(outputs[o], from, static_cast<size_t>(bytes));
  }
}

}  // namespace fathom::compile
