"""One node: the composition root, its two roles, its config and its directories.

node                     starts and stops everything         node_resources       what both roles share
broker_role              the parts of a broker               controller_role      the parts of a controller
lifecycle                registration, heartbeats, fencing, controlled shutdown of a broker
previous_broker_epoch    what a registration claims after a crash (KIP-966)
controller_channel       requests to the active controller   metadata_quorum      this node's replica of the quorum
publisher                committed metadata → partitions, logs, dynamic configs
directory_assignments    which log directory holds a replica (KIP-858)
producer_ids             blocks of producer ids              logging_setup        the log of the process
config, config_rules, listeners, properties_file             server.properties → typed settings
dynamic_config           configs in force while the node runs
storage, meta_properties, metadata_versions                  formatting and verifying the directories
"""
