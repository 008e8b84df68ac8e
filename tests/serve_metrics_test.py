"""The metrics of `fathom serve` against the requests and answers.

usage: serve_metrics_test.py FATHOM
"""

import concurrent.futures
import os
import re
import sys
import unittest

from serve_process import CHAT, COMPLETIONS, Served, Server, greedy

Served.FATHOM = os.path.abspath(sys.argv.pop(1))


class Metrics(Served):
    ALIASES = {"requests_running": "num_requests_running", "requests_waiting": "num_requests_waiting",
               "requests_waiting_by_reason": "num_requests_waiting_by_reason", "rows_per_step": "iteration_tokens_total",
               "kv_usage_ratio": "kv_cache_usage_perc", "prompt_tokens_total": "prompt_tokens_total",
               "generated_tokens_total": "generation_tokens_total", "requests_finished_total": "request_success_total",
               "preemptions_total": "num_preemptions_total", "prefix_queried_tokens_total": "prefix_cache_queries_total",
               "prefix_hit_tokens_total": "prefix_cache_hits_total",
               "prompt_tokens_by_source_total": "prompt_tokens_by_source_total",
               "time_to_first_token_seconds": "time_to_first_token_seconds",
               "inter_token_latency_seconds": "inter_token_latency_seconds",
               "time_per_output_token_seconds": "request_time_per_output_token_seconds",
               "request_e2e_seconds": "e2e_request_latency_seconds", "request_queue_seconds": "request_queue_time_seconds",
               "request_prefill_seconds": "request_prefill_time_seconds",
               "request_decode_seconds": "request_decode_time_seconds",
               "request_inference_seconds": "request_inference_time_seconds",
               "request_prompt_tokens": "request_prompt_tokens", "request_generated_tokens": "request_generation_tokens"}
    FLAGS = ("--max-num-seqs", 4, "--kv-tokens", 4096, "--max-model-len", 2048)

    def test_identities(self):
        asked, received, prompt_tokens, lengths = 0, 0, 0, []
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            jobs = [pool.submit(self.server.ask, CHAT, **greedy(f"What is {i} + {i}?", n=1 + i % 2, max_tokens=20 + 40 * (i % 5)))
                    for i in range(40)]
            while not all(job.done() for job in jobs):  # under load, not only at rest
                self.check(self.server.metrics())
            for i, job in enumerate(jobs):
                usage = job.result()["usage"]
                asked += 1 + i % 2
                received += usage["completion_tokens"]
                prompt_tokens += usage["prompt_tokens"] * (1 + i % 2)
                lengths.append(usage["completion_tokens"])
        with self.assertRaises(AssertionError):
            self.server.ask(CHAT, messages=[])
        self.server.seconds_until_idle()
        metrics = self.server.metrics()
        self.check(metrics)

        def one(name):
            (value,) = metrics[name].values()
            return value
        self.assertEqual(one("fathom_request_e2e_seconds_count"), asked)
        self.assertEqual(sum(metrics["fathom_requests_finished_total"].values()), asked)
        self.assertEqual(one("fathom_request_generated_tokens_sum"), received)
        self.assertEqual(one("fathom_generated_tokens_total"), received)
        self.assertEqual(one("fathom_prompt_tokens_total"), prompt_tokens)
        self.assertEqual(one("fathom_request_prompt_tokens_sum"), prompt_tokens)
        self.assertEqual(one("fathom_prefix_queried_tokens_total"), prompt_tokens)
        self.assertEqual(one("fathom_inter_token_latency_seconds_count"), received - asked)
        self.assertEqual(one("fathom_request_choices_count"), 40)
        by_status = {(dict(labels)["route"], dict(labels)["status"]): v
                     for labels, v in metrics["fathom_http_responses_total"].items()}
        self.assertEqual((by_status[CHAT, "2xx"], by_status[CHAT, "4xx"]), (40, 1))

    def check(self, metrics):
        """Invariants of the metrics at any moment."""
        for own, alias in self.ALIASES.items():
            names = [name for name in metrics if re.fullmatch(rf"fathom_{own}(_bucket|_sum|_count)?", name)]
            self.assertTrue(names, own)
            for name in names:
                other = f"vllm:{alias}" + name[len(f"fathom_{own}"):]
                self.assertEqual(metrics.get(other), metrics[name], other)

        def total(name):
            return sum(metrics[f"fathom_{name}"].values())
        for whole, parts in (("request_e2e_seconds", ("request_queue_seconds", "request_inference_seconds")),
                             ("request_inference_seconds", ("request_prefill_seconds", "request_decode_seconds")),
                             ("time_to_first_token_seconds", ("request_queue_seconds", "request_prefill_seconds"))):
            self.assertAlmostEqual(total(whole + "_sum"), sum(total(part + "_sum") for part in parts), places=6, msg=whole)
            for part in parts:
                self.assertEqual(total(part + "_count"), total(whole + "_count"))
        self.assertEqual(total("prompt_tokens_by_source_total"), total("prompt_tokens_total"))
        self.assertEqual(total("requests_waiting_by_reason"), total("requests_waiting"))
        self.assertEqual((total("rows_per_step_count"), total("rows_per_step_sum")),
                         (total("steps_total"), total("step_rows_total")))
        self.assertLessEqual(total("prefix_hit_tokens_total"), total("prefix_queried_tokens_total"))
        self.assertLessEqual(total("requests_running"), 4)
        self.assertLessEqual(total("kv_pages_in_use"), total("kv_pages"))
        for name, series in metrics.items():  # buckets of a histogram are cumulative, up to its count
            if name.endswith("_bucket"):
                by_labels = {}
                for labels, value in series.items():
                    bound = float(dict(labels)["le"])
                    by_labels.setdefault(frozenset(l for l in labels if l[0] != "le"), []).append((bound, value))
                for labels, buckets in by_labels.items():
                    counts = [count for _, count in sorted(buckets)]
                    self.assertEqual(counts, sorted(counts), name)
                    self.assertEqual(counts[-1], metrics[name[:-len("_bucket")] + "_count"][labels], name)


class ExpertsThatMove(Served):
    FLAGS = ("-tp", 2, "--enable-expert-parallel", "--enable-eplb", "--eplb-config",
             '{"window_size": 8, "step_interval": 8, "num_redundant_experts": 2, "log_balancedness": true, '
             '"log_balancedness_interval": 5}')
    QUESTIONS = [f"What is {i} plus {i + 3}?" for i in range(8)]
    SKEWED = [[17] * 180, [301] * 180]  # a token again and again goes to the same experts

    def test_answers_are_those_of_one_rank_and_moves_are_counted(self):
        def answers(server):
            texts = [server.ask(COMPLETIONS, prompt=ids, temperature=0, max_tokens=8)["choices"][0]["text"]
                     for ids in self.SKEWED]
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                return texts + [reply["choices"][0]["message"] for reply in
                                pool.map(lambda text: server.ask(CHAT, **greedy(text, max_tokens=24)), self.QUESTIONS)]
        with Server(self.FATHOM) as one_rank:
            expected = answers(one_rank)
            self.assertNotIn("fathom_eplb_experts_moved_total", one_rank.metrics())
        self.assertEqual(answers(self.server), expected)
        self.server.seconds_until_idle()
        metrics = self.server.metrics()

        def one(name):
            (value,) = metrics[name].values()
            return value
        plans = {dict(labels)["outcome"]: value for labels, value in metrics["fathom_eplb_plans_total"].items()}
        self.assertEqual(plans["taken"] + plans["refused"], one("fathom_steps_total") // 8 * 6)
        self.assertGreater(plans["taken"], 0)
        self.assertGreater(one("fathom_eplb_experts_moved_total"), 0)
        self.assertGreater(one("fathom_eplb_seconds_total"), 0)
        # No token is dropped, and none computed twice: 4 experts of 6 layers for each row, on 2 ranks.
        self.assertEqual(one("fathom_eplb_mean_rank_tokens_total"), one("fathom_step_rows_total") * 6 * 4 / 2)
        self.assertLessEqual(one("fathom_eplb_mean_rank_tokens_total"), one("fathom_eplb_max_rank_tokens_total"))
        self.assertTrue(0.5 <= one("fathom_eplb_balancedness_ratio") <= 1)
        self.assertGreaterEqual(one("fathom_rank_imbalance_ratio"), 1)
        self.server.said("EPLB step 5: avg_tokens=")


class Choices(Served):
    def test_choices_compute_their_prompt_once(self):
        n, block = 4, 16

        def counted():
            """Prompt tokens computed as the metrics say, and rows of all steps."""
            self.server.seconds_until_idle()
            metrics = self.server.metrics()
            (hits,), (prompts,), (rows,) = (metrics[name].values() for name in (
                "vllm:prefix_cache_hits_total", "vllm:prompt_tokens_total", "fathom_step_rows_total"))
            return prompts - hits, rows
        for length in (5, 47, 48, 49, 600):  # of the text, in words
            computed, rows = counted()
            text = f"{length} texts: " + " ".join(str(i * i % 97) for i in range(length))
            reply = self.server.ask(CHAT, **greedy(text, n=n, max_tokens=8))
            self.assertEqual(len({str(choice["message"]) for choice in reply["choices"]}), 1)
            prompt, answers = reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]
            now_computed, now_rows = counted()
            self.assertLessEqual(now_computed - computed, prompt + (n - 1) * block, f"a prompt of {prompt} tokens")
            # The first token of an answer comes with the prompt.
            self.assertEqual(now_rows - rows, now_computed - computed + answers - n)


unittest.main(verbosity=2)
