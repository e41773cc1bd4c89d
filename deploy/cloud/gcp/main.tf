# A fleet of Spot VMs on Google Cloud, each a node of one run. One that is taken back is started again when there is room, and
# comes back to the run with its folder.
#
#   export TF_VAR_invite="$(cat invite.txt)"
#   terraform apply -var from=https://example.com/pnode/v0.1.0 -var project=...
#
# The invite is in the metadata and in Terraform's state: whoever reads either can use it.
terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0, < 8.0"
    }
  }
}

variable "invite" {
  description = "What `pnode invite --uses 50 --ttl 168h` printed: each new VM uses it once"
  type        = string
  sensitive   = true
}

variable "from" {
  description = "Address of the folder with a release's files"
  type        = string
}

variable "project" {
  type = string
}

variable "zone" {
  type    = string
  default = "us-central1-a"
}

variable "nodes" {
  type    = number
  default = 4
}

variable "machine_type" {
  type    = string
  default = "c3-standard-8"
}

variable "gpu" {
  description = "Type of one GPU for each VM, such as nvidia-l4, or none; the image then needs NVIDIA's driver"
  type        = string
  default     = null
}

variable "image" {
  description = "Image with systemd, cloud-init and curl: Google's of Debian have no cloud-init"
  type        = string
  default     = "ubuntu-os-cloud/ubuntu-2404-lts-amd64"
}

variable "disk" {
  description = "GB: two whole checkpoints (24 bytes a parameter) and the text"
  type        = number
  default     = 50
}

provider "google" {
  project = var.project
  zone    = var.zone
}

resource "google_compute_instance_template" "pnode" {
  name_prefix  = "pnode-"
  machine_type = var.machine_type

  disk {
    source_image = var.image
    disk_size_gb = var.disk
    boot         = true
  }

  network_interface {
    network = "default"
    access_config {}
  }

  scheduling {
    provisioning_model          = "SPOT"
    preemptible                 = true
    automatic_restart           = false
    on_host_maintenance         = "TERMINATE"
    instance_termination_action = "STOP"
  }

  dynamic "guest_accelerator" {
    for_each = var.gpu == null ? [] : [var.gpu]
    content {
      type  = guest_accelerator.value
      count = 1
    }
  }

  metadata = {
    user-data = replace(replace(
      file("${path.module}/../cloud-init.yaml"), "pnode1-...", var.invite), "https://example.com/pnode/v0.1.0", var.from
    )
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_compute_instance_group_manager" "pnode" {
  name               = "pnode"
  base_instance_name = "pnode"
  zone               = var.zone
  target_size        = var.nodes

  version {
    instance_template = google_compute_instance_template.pnode.self_link
  }
}
