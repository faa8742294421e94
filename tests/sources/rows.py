"""Manual steps of the sources, row by row as in FACTS 1, and the tests that show each declared."""

from __future__ import annotations

STACKS = "golden/test_stacks.py::test_the_stack_is_what_was_reviewed"
"""Pulumi.local.yaml has CERN's and Bumble's pools and workloads, Pulumi.aws-dev.yaml has Cisco's cluster."""
ROWS: dict[int, tuple[str, ...]] = {
    1: (
        "sources/test_cern_magnum.py::test_cern_commands_and_ours_lead_to_the_same_requests",
        "plan/test_magnum.py::test_the_sources_cluster_is_its_own_command_and_nothing_else",
    ),
    2: (
        "sources/test_cern_magnum.py::test_cern_commands_and_ours_lead_to_the_same_requests",
        "plan/test_magnum.py::test_the_sources_node_group_is_its_own_command_and_nothing_else",
    ),
    3: ("lab/simulator/test_cluster.py::test_cern_operands_run_and_the_cuda_job_completes",),
    4: ("lab/simulator/test_operands.py::test_cern_labels_of_a_t4",),
    5: (
        "plan/test_operator.py::test_every_operand_tolerates_every_taint_of_gpu_nodes",
        "plan/test_sharing.py::test_the_gpu_taint_comes_by_itself_and_its_key_by_choice",
    ),
    6: (STACKS, "lab/simulator/test_cluster.py::test_cern_time_slicing_slice_4"),
    7: (STACKS, "lab/simulator/test_cluster.py::test_cern_mig_mixed"),
    8: (
        STACKS,
        "sources/test_cern_neighbours.py::test_cern_under_time_slicing_the_notebook_starves_the_others",
        "sources/test_cern_neighbours.py::test_cern_under_mig_the_notebook_starves_itself_only",
    ),
    9: ("sources/test_setups.py::test_cern_row_9_each_class_has_its_sharing",),
    10: (
        "sources/test_monitoring_rows.py::test_what_is_wanted_is_shown",
        "sources/test_setups.py::test_cern_row_10_notebooks_with_a_minimum_of_cpu_and_memory_and_a_gpu",
    ),
    11: (
        "sources/test_setups.py::test_bumble_driver_of_the_hosts_with_the_operators_switched_off",
        "ansible/test_driver_role.py::test_the_driver_is_installed_pinned_held_and_runs_without_a_restart",
    ),
    12: (
        STACKS,
        "sources/test_setups.py::test_bumble_own_layout_of_three_small_and_two_middle_slices",
        "lab/simulator/test_cluster.py::test_bumble_refuses_to_cut_a_gpu_in_use_then_all_1g5gb",
    ),
    13: (STACKS, "plan/test_workload_manifests.py::test_the_request_follows_from_the_pool"),
    14: (
        "sources/test_monitoring_rows.py::test_what_is_wanted_is_shown",
        "plan/test_monitoring.py::test_bumble_row_14_additional_scrape_configs",
        "journey/test_dashboards.py::test_every_query_returns_series",
    ),
    15: (
        "sources/test_bumble_packing.py::test_bumble_without_packing_no_node_keeps_four_gpus",
        "sources/test_bumble_packing.py::test_bumble_with_packing_whole_nodes_stay_free",
    ),
    16: (
        "plan/test_scaling.py::test_pods_are_those_of_the_deployment_that_it_would_be_without_a_model",
        "plan/test_scaling.py::test_triton_reads_the_model_and_listens_where_the_service_and_prometheus_ask",
        "plan/test_scaling.py::test_releases_come_only_with_a_model_and_cert_manager_unless_there_is_one",
    ),
    17: (STACKS, "sources/test_setups.py::test_cisco_row_17_the_plugin_is_kept_to_gpu_nodes"),
    18: ("sources/test_setups.py::test_cisco_node_with_its_toolkit_and_nvcc",),
    19: (STACKS, "sources/test_setups.py::test_cisco_row_19_each_kind_is_a_pool_of_one_cluster"),
    20: (STACKS,),
    21: (STACKS, "lab/rehearse/test_slices_are_bought.py::test_the_fourth_of_three_slices_buys_a_node"),
    22: (
        "model/test_catalogue.py::test_every_model_that_has_it_will_do",
        "plan/test_operator.py::test_without_cdi_a_toolkit_of_ours_gives_gpus_by_mounts_only",
        "lab/simulator/test_device_plugin.py::test_nvidia_three_gpus_one_unhealthy",
        "lab/simulator/test_device_plugin.py::test_nvidia_zero_downtime_re_registration",
    ),
    23: (
        "provider/workloads/test_rollout.py::test_one_move",
        "plan/test_workload_manifests.py::test_a_service_finds_the_port_of_the_container_by_its_name",
        "plan/test_queues.py::test_limits_order_preemption_and_weight_are_kueues",
        "plan/test_scaling.py::test_requests_are_those_that_the_workloads_own_pods_answered",
        "plan/test_scaling.py::test_pods_are_rather_near_the_data_than_pending",
    ),
    24: (
        "sources/test_monitoring_rows.py::test_what_is_wanted_is_shown",
        "plan/rules/test_alerts.py::test_each_alert_fires_alone_and_ends",
        "plan/rules/test_alerts.py::test_what_takes_hours",
    ),
    25: (
        "sources/test_monitoring_rows.py::test_kubecon_row_25_its_list_of_counters",
        "plan/rules/test_recorded.py::test_gke",
        "plan/test_training.py::test_pods_that_run_together_have_a_number_and_find_the_first",
        "plan/test_training.py::test_a_gang_is_an_indexed_job_that_kueue_places_as_a_whole",
        "lab/sidecars/controllers/test_planned_queues.py::test_a_planned_gang_starts_whole_and_close_or_not_at_all",
        "plan/test_claims.py::test_a_claim_chooses_its_gpu_by_what_the_driver_tells_of_it",
        "lab/simulator/test_claims.py::test_the_scheduler_gives_what_there_is_and_says_what_is_missing",
    ),
}
"""Tests by file and name; their outcomes are those of the run, see ``tests.tiers``."""

OPEN: dict[int, str] = {}
"""Parts of a row that no test shows yet."""
