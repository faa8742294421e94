"""Manual steps of the sources, row by row as in FACTS 1, and the tests that show each declared."""

from __future__ import annotations

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
    4: ("sources/test_cern_facts.py::test_cern_gfd_labels_of_a_t4",),
    5: ("sources/test_cern_facts.py::test_cern_taint_of_gpu_node_groups",),
    6: (
        "sources/test_cern_facts.py::test_cern_time_slicing_slice_4_is_declared",
        "lab/simulator/test_cluster.py::test_cern_time_slicing_slice_4",
    ),
    7: (
        "sources/test_cern_facts.py::test_cern_mig_3g_and_two_2g_is_declared",
        "lab/simulator/test_cluster.py::test_cern_mig_mixed",
    ),
    8: (
        "sources/test_cern_facts.py::test_cern_three_neighbours_on_time_slices_and_on_mig",
        "sources/test_cern_neighbours.py::test_cern_under_time_slicing_the_notebook_starves_the_others",
        "sources/test_cern_neighbours.py::test_cern_under_mig_the_notebook_starves_itself_only",
    ),
    9: ("sources/test_cern_classes.py::test_cern_row_9_each_class_has_its_sharing",),
    10: (
        "sources/test_monitoring_rows.py::test_cern_row_10_pipes_are_counted_and_shown",
        "sources/test_cern_notebooks.py::test_cern_row_10_notebooks_with_a_minimum_of_cpu_and_memory_and_a_gpu",
    ),
    11: (
        "sources/test_bumble_facts.py::test_bumble_driver_of_the_hosts_with_the_operators_switched_off",
        "ansible/test_driver_role.py::test_the_driver_is_installed_pinned_held_and_runs_without_a_restart",
    ),
    12: (
        "sources/test_bumble_facts.py::test_bumble_all_1g_5gb",
        "sources/test_bumble_facts.py::test_bumble_own_layout_of_three_small_and_two_middle_slices",
        "lab/simulator/test_cluster.py::test_bumble_refuses_to_cut_a_gpu_in_use_then_all_1g5gb",
    ),
    13: (
        "sources/test_bumble_facts.py::test_bumble_pod_pinned_by_product",
        "sources/test_bumble_facts.py::test_bumble_row_13_pod_on_a_slice",
    ),
    14: (
        "sources/test_monitoring_rows.py::test_bumble_row_14_one_scrape_configuration_and_two_dashboards",
        "journey/test_dashboards.py::test_every_query_returns_series",
    ),
    15: (
        "sources/test_bumble_packing.py::test_bumble_without_packing_no_node_keeps_four_gpus",
        "sources/test_bumble_packing.py::test_bumble_with_packing_whole_nodes_stay_free",
    ),
    16: ("sources/test_bumble_facts.py::test_bumble_row_16_triton_on_kserve",),
    17: (
        "sources/test_cisco_facts.py::test_cisco_row_17_the_plugin_is_kept_to_gpu_nodes",
        "sources/test_cisco_facts.py::test_cisco_taint_and_toleration",
    ),
    18: ("sources/test_cisco_facts.py::test_cisco_node_with_its_toolkit_and_nvcc",),
    19: (
        "sources/test_cisco_facts.py::test_cisco_time_slicing_of_three_is_not_renamed",
        "sources/test_cisco_facts.py::test_cisco_row_19_one_process_mps_and_time_slicing",
        "sources/test_cisco_kinds.py::test_cisco_row_19_each_kind_is_a_pool_of_one_cluster",
        "sources/test_cisco_kinds.py::test_cisco_row_19_vgpu_is_the_hypervisors",
    ),
    20: (
        "sources/test_cisco_karpenter.py::test_cisco_karpenter_helm",
        "sources/test_cisco_karpenter.py::test_cisco_karpenter_nodepool_g4dn",
        "sources/test_cisco_karpenter.py::test_cisco_node_class",
        "sources/test_cisco_karpenter.py::test_cisco_user_data_pulls_the_image_and_sets_the_limits",
    ),
    21: (
        "sources/test_cisco_karpenter.py::test_cisco_a_node_counts_for_three_pods_before_it_is_there",
        "lab/rehearse/test_slices_are_bought.py::test_the_fourth_of_three_slices_buys_a_node",
    ),
    22: (
        "sources/test_nvidia_facts.py::test_nvidia_row_22_a_pool_by_what_its_gpus_have",
        "sources/test_nvidia_facts.py::test_nvidia_row_22_a_pod_that_asks_for_no_gpu_sees_none",
        "lab/simulator/test_kubelet.py::test_nvidia_three_gpus_one_unhealthy",
        "lab/simulator/test_device_plugin.py::test_nvidia_zero_downtime_re_registration",
    ),
    23: (
        "sources/test_nvidia_services.py::test_nvidia_row_23_blue_green_with_no_spare_gpu",
        "sources/test_nvidia_services.py::test_nvidia_row_23_slow_start_is_waited_for",
        "sources/test_nvidia_services.py::test_nvidia_row_23_user_queues_in_order",
        "sources/test_nvidia_services.py::test_nvidia_row_23_scaling_on_requests_and_not_on_gpu_load",
    ),
    24: (
        "sources/test_monitoring_rows.py::test_nvidia_row_24_what_is_wanted_is_shown",
        "sources/test_monitoring_rows.py::test_nvidia_row_24_what_is_to_be_found_is_told",
    ),
    25: (
        "sources/test_monitoring_rows.py::test_kubecon_row_25_its_list_of_counters",
        "sources/test_monitoring_rows.py::test_kubecon_row_25_gkes_metrics_are_read_into_the_same_series",
        "plan/rules/test_kinds.py::test_gke",
        "sources/test_kubecon_gang.py::test_kubecon_row_25_all_pods_of_a_job_at_once",
        "lab/sidecars/controllers/test_planned_queues.py::test_a_planned_gang_starts_whole_and_close_or_not_at_all",
        "plan/test_claims.py::test_a_claim_chooses_its_gpu_by_what_the_driver_tells_of_it",
        "lab/simulator/test_claims.py::test_the_scheduler_gives_what_there_is_and_says_what_is_missing",
    ),
}
"""Tests by file and name; their outcomes are those of the run, see ``tests.tiers``."""

OPEN: dict[int, str] = {}
"""Parts of a row that no test shows yet."""
