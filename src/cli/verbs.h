// The verbs of `fathom`. Each function adds a subcommand to `app`; its callback sets `exit_code`
// (core/exit_code.h) or throws UsageError.
#pragma once

namespace CLI {
class App;
}

namespace fathom::cli {

void add_list(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_optimize(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_expect(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_roofline(CLI::App& app, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);
void add_diagnose(CLI::App& app, int& exit_code);
void add_stats(CLI::App& app, int& exit_code);
void add_techniques(CLI::App& app, int& exit_code);
void add_history(CLI::App& app, int& exit_code);
void add_compile(CLI::App& app, int& exit_code);
void add_model(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_chat(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_serve(CLI::App& app, int& exit_code);
void add_kv_pool(CLI::App& app, int& exit_code);
void add_launch(CLI::App& app, int& exit_code);
void add_train(CLI::App& app, int& exit_code);
void add_book(CLI::App& app, int& exit_code);

// Of `fathom model`.
void add_model_eval(CLI::App& model_verb, int& exit_code);
void add_model_make(CLI::App& model_verb, int& exit_code);
void add_model_numerics(CLI::App& model_verb, int& exit_code);
void add_model_quantize(CLI::App& model_verb, int& exit_code);
void add_model_tasks(CLI::App& model_verb, int& exit_code);
void add_model_tokenize(CLI::App& model_verb, int& exit_code);

}  // namespace fathom::cli
